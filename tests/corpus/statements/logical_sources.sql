--- every_type
CREATE LOGICAL SOURCE everything (
  a BOOL, b INT8, c INT16, d INT32, e INT64, f UINT8, g UINT16, h UINT32, i UINT64, j FLOAT32, k FLOAT64,
  l DECIMAL(38,10), m VARCHAR, n CHAR(3), o BINARY, p DATE, q TIMESTAMP,
  r ARRAY<INT64>, s MAP<VARCHAR, FLOAT64>, t STRUCT<x: INT32, y: ARRAY<VARCHAR> NOT NULL>
)
--- synonyms_become_canonical
CREATE LOGICAL SOURCE s (
  a BOOLEAN, b TINYINT, c SMALLINT, d INT, e INTEGER, f BIGINT, g FLOAT, h REAL, i DOUBLE, j DOUBLE PRECISION,
  k NUMERIC(12), l DEC, m TEXT, n VARSIZED, o STRING, p CHAR, q VARBINARY, r BYTES, t TIMESTAMP WITH TIME ZONE,
  u TIMESTAMP_LTZ, v INT[], w STRUCT<x INT, y TEXT>, x VARCHAR(255), y CHARACTER VARYING(10), z DATETIME
)
--- names_fold_and_columns_keep_their_case
create logical source "Road_Traffic" ("Creation TS" timestamp not null, `highway` int null, Speed float32)
--- if_not_exists
CREATE LOGICAL SOURCE IF NOT EXISTS s (a INT)
--- keywords_as_names
CREATE LOGICAL SOURCE source (start TIMESTAMP, end TIMESTAMP, type TEXT, window INT, "select" INT, timestamp TIMESTAMP, date DATE, key TEXT, set INT, comment TEXT)
--- dashes_need_no_quotes
CREATE LOGICAL SOURCE sensor-readings-2 (a INT)
--- comments_anywhere
/* the stream
   of cars */ CREATE LOGICAL SOURCE -- of cars
s /* here */ (a /* and */ INT -- here
)
--- refused_no_columns
CREATE LOGICAL SOURCE s ()
--- refused_without_columns
CREATE LOGICAL SOURCE s
--- refused_several_columns_at_once
CREATE LOGICAL SOURCE s (
  a INTT,
  b VARCHAR,
  B TEXT,
  c DECIMAL(39,2),
  e MAP<MAP<INT,INT>,INT>,
  f TIMESTAMP_NTZ,
  g JSON
)
--- refused_decimal_scale_above_precision
CREATE LOGICAL SOURCE s (a DECIMAL(4,5))
--- refused_timestamp_with_precision
CREATE LOGICAL SOURCE s (a TIMESTAMP(3))
--- refused_timestamp_without_time_zone
CREATE LOGICAL SOURCE s (a TIMESTAMP WITHOUT TIME ZONE)
--- refused_primary_key
CREATE LOGICAL SOURCE s (a INT PRIMARY KEY)
--- refused_default
CREATE LOGICAL SOURCE s (a INT DEFAULT 5)
--- refused_options_on_a_logical_source
CREATE LOGICAL SOURCE s (a INT) TYPE FILE SET('x' AS SOURCE.FILE_PATH)
--- refused_name_too_long
CREATE LOGICAL SOURCE aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa (a INT)
--- refused_name_of_other_alphabets
CREATE LOGICAL SOURCE "ѕource" (a INT)
--- refused_name_with_a_space
CREATE LOGICAL SOURCE "my source" (a INT)
--- refused_missing_bracket
CREATE LOGICAL SOURCE s (a INT, b INT
--- refused_two_types_for_a_column
CREATE LOGICAL SOURCE s (a INT INT)
--- refused_type_that_is_not_closed
CREATE LOGICAL SOURCE s (a INTT, d ARRAY<INT, e INT)

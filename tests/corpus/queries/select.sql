--- all_columns
CREATE SINK out(creationTS TIMESTAMP, vehicle INT32, speed FLOAT32, highway INT16, lane UINT8, direction BOOL, position INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT * FROM lrb INTO out
--- columns_in_another_order
CREATE SINK out(speed FLOAT32, vehicle INT32, creationTS TIMESTAMP) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT speed, vehicle, creationTS FROM lrb INTO out
--- case_of_names_does_not_count
CREATE SINK out(VEHICLE INT32, Speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT VEHICLE, Lrb.Speed FROM LRB INTO out
--- quoted_names
CREATE SINK out("Weird Name" VARCHAR, began TIMESTAMP) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT "Weird Name", `start` AS began FROM sessions INTO out
--- star_except
CREATE SINK out(creationTS TIMESTAMP, vehicle INT32, speed FLOAT32, highway INT16, position INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT * EXCEPT (lane, direction) FROM lrb INTO out
--- star_of_a_relation
CREATE SINK out(creationTS TIMESTAMP, vehicle INT32, speed FLOAT32, highway INT16, lane UINT8, direction BOOL, position INT64, twice FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT l.*, l.speed * 2 AS twice FROM lrb AS l INTO out
--- star_of_a_struct
CREATE SINK out(city VARCHAR, at STRUCT<x: FLOAT64, y: FLOAT64>) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT place.* FROM types INTO out
--- arithmetic
CREATE SINK out(a INT8, b INT64, c FLOAT64, d INT64, e FLOAT32, f FLOAT64, g DECIMAL(11,2), h DECIMAL(38,6), i DECIMAL(21,13), j INT64, k DECIMAL(10,2), l INT16, m DECIMAL(21,0), n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT i8 + i8 AS a, i32 * i64 AS b, i32 / i32 AS c, i32 DIV i8 AS d, f32 * f32 AS e, f32 + i32 AS f, d10 + d10 AS g, d10 * d38 AS h, d10 / i32 AS i, i64 % 7 AS j, -d10 AS k, u8 + u8 AS l, u64 + 1 AS m, u32 - u16 AS n FROM types INTO out
--- literals
CREATE SINK out(a INT32 NOT NULL, b INT64 NOT NULL, c DECIMAL(3,2) NOT NULL, d FLOAT64 NOT NULL, e VARCHAR NOT NULL, f BOOL NOT NULL, g DATE NOT NULL, h TIMESTAMP NOT NULL, i BINARY NOT NULL, j DECIMAL(21,0) NOT NULL, k INT32 NOT NULL, l DECIMAL(1,1) NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT 1 AS a, 5000000000 AS b, 1.50 AS c, 1e3 AS d, 'it''s' AS e, TRUE AS f, DATE '2026-01-31' AS g, TIMESTAMP '2026-01-31 12:00:00.5' AS h, X'CAFE' AS i, 123456789012345678901 AS j, -1 AS k, .5 AS l FROM lrb INTO out
--- case_expressions
CREATE SINK out(class VARCHAR NOT NULL, h INT64, sign INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT CASE WHEN speed > 100 THEN 'fast' WHEN speed > 50 THEN 'medium' ELSE 'slow' END AS class, CASE highway WHEN 1 THEN i ELSE 0 END AS h, IF(direction, 1, -1) AS sign FROM (SELECT *, position AS i FROM lrb) INTO out
--- casts
CREATE SINK out(a INT32, b FLOAT64, c FLOAT32, d DECIMAL(12,3), e INT64, f UINT8, g UINT64, h VARCHAR, i CHAR(2), j DATE, k TIMESTAMP, l INT32, m UINT16, n VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT CAST(i64 AS INT32) AS a, i32::FLOAT64 AS b, FLOAT32(i8) AS c, CAST(s AS DECIMAL(12,3)) AS d, TRY_CAST(s AS INT64) AS e, CAST(i32 AS UINT8) AS f, TRY_CAST(i64 AS UINT64) AS g, CAST(d10 AS VARCHAR) AS h, CAST(s AS CHAR(2)) AS i, CAST(ts AS DATE) AS j, CAST(day AS TIMESTAMP) AS k, CAST(b AS INT32) AS l, CAST(u8 AS UINT16) AS m, CAST(NULL AS VARCHAR) AS n FROM types INTO out
--- text_functions
CREATE SINK out(a VARCHAR, b VARCHAR, c VARCHAR, d VARCHAR, e INT32, f VARCHAR, g VARCHAR, h INT32, i VARCHAR, j VARCHAR, k BOOL, l VARCHAR, m VARCHAR, n VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT upper(s) AS a, s || '-' || c AS b, substring(s FROM 2 FOR 3) AS c, trim(LEADING 'x' FROM s) AS d, position('a' IN s) AS e, lpad(s, 5, '0') AS f, split_part(s, ',', 1) AS g, length(s) AS h, concat_ws('/', s, c) AS i, replace(s, 'a', 'b') AS j, starts AS k, md5(s) AS l, trim(s) AS m, rtrim(s) AS n FROM (SELECT *, startswith(s, 'x') AS starts FROM types) INTO out
--- regular_expressions
CREATE SINK out(a VARCHAR, b VARCHAR, c BOOL, d INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT regexp_extract(s, '(\\d+)', 1) AS a, regexp_replace(s, '[aeiou]', '') AS b, s RLIKE '^x' AS c, regexp_count(s, 'a') AS d FROM types INTO out
--- json_functions
CREATE SINK out(a VARCHAR, b INT32, c VARCHAR, d INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT get_json_object(doc, '$.a.b') AS a, from_json(doc, 'STRUCT<x: INT32, y: ARRAY<VARCHAR>>').x AS b, to_json(place) AS c, json_array_length(doc) AS d FROM types INTO out
--- time_functions
CREATE SINK out(a INT32, b INT32, c TIMESTAMP, d VARCHAR, e TIMESTAMP, f TIMESTAMP, g DATE, h INT32, i INT64, j TIMESTAMP, k TIMESTAMP, l INT64, m DECIMAL(8,6), n DATE) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT year(ts) AS a, EXTRACT(HOUR FROM ts) AS b, date_trunc('HOUR', ts) AS c, date_format(ts, 'yyyy-MM-dd') AS d, ts + INTERVAL '5' MINUTES AS e, ts - INTERVAL 1 DAY AS f, day + 3 AS g, datediff(day, '2026-01-01') AS h, unix_millis(ts) AS i, timestamp_millis(i64) AS j, to_timestamp(s, 'yyyy-MM-dd') AS k, timestampdiff(SECOND, ts, current_timestamp()) AS l, EXTRACT(SECOND FROM ts) AS m, add_months(day, 1) AS n FROM types INTO out
--- numeric_functions
CREATE SINK out(a INT32, b DECIMAL(10,1), c INT64, d DECIMAL(9,0), e FLOAT64, f FLOAT64, g INT64, h INT32, i FLOAT64, j FLOAT64, k BOOL NOT NULL, l INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT abs(i32) AS a, round(d10, 1) AS b, ceil(f64) AS c, floor(d10) AS d, sqrt(f64) AS e, power(i32, 2) AS f, greatest(i8, i32, i64) AS g, mod(i32, 5) AS h, sign(d10) AS i, log(2, f64) AS j, isnan(f32) AS k, hash(s, i32) AS l FROM types INTO out
--- nested_values
CREATE SINK out(a INT32, b INT32, c VARCHAR, d FLOAT64, e INT32, f BOOL, g INT32, h ARRAY<VARCHAR>, i ARRAY<INT32> NOT NULL, j STRUCT<n: INT32, s: VARCHAR> NOT NULL, k MAP<VARCHAR, INT32> NOT NULL, l STRUCT<p: FLOAT64> NOT NULL, m VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT ints[0] AS a, tags['k'] AS b, place.city AS c, place.at.x AS d, size(names) AS e, array_contains(ints, 3) AS f, element_at(tags, 'z') AS g, map_keys(tags) AS h, ARRAY(i32, 5) AS i, STRUCT(i32 AS n, s) AS j, MAP('a', i32) AS k, named_struct('p', f64) AS l, array_join(names, ',') AS m FROM types INTO out
--- choices
CREATE SINK out(a VARCHAR NOT NULL, b INT32, c DECIMAL(12,2) NOT NULL, d INT64, e FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COALESCE(s, c, 'none') AS a, NULLIF(i32, 0) AS b, nvl(d10, 0) AS c, nvl2(s, i32, i64) AS d, least(f32, f64) AS e FROM types INTO out
--- not_null_stays
CREATE SINK out(must INT32 NOT NULL, more INT32 NOT NULL, some INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must, must + 1 AS more, COALESCE(i32, 0) AS some FROM types INTO out
--- unsigned_stay_unsigned
CREATE SINK out(u8 UINT8, u16 UINT16, u32 UINT32, u64 UINT64, same UINT8, picked UINT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT u8, u16, u32, u64, COALESCE(u8, u8) AS same, CASE WHEN b THEN u64 ELSE u64 END AS picked FROM types INTO out
--- earlier_alias_of_the_same_select
CREATE SINK out(twice FLOAT64, more FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT speed * 2 AS twice, twice + 1 AS more FROM lrb INTO out
--- null_literal_takes_the_type_of_the_sink
CREATE SINK out(vehicle INT32, note VARCHAR) TYPE PRINT ON edge;
SELECT vehicle, NULL AS note FROM lrb INTO out
--- folded_constants
CREATE SINK out(vehicle INT32, seven INT32 NOT NULL, ab VARCHAR NOT NULL, two INT32 NOT NULL, three INT64 NOT NULL, no BOOL NOT NULL, dec DECIMAL(3,1) NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, 1 + 2 * 3 AS seven, 'a' || 'b' AS ab, CASE WHEN 1 > 2 THEN 1 ELSE 2 END AS two, 10 DIV 3 AS three, NOT TRUE AS no, 1.5 + 1.5 AS dec FROM lrb WHERE 1 = 1 AND speed > 10 + 5 INTO out
--- literals_of_java
CREATE SINK out(a VARCHAR, b VARCHAR, c VARCHAR, d TIMESTAMP, e INT32, f VARCHAR, g BOOL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT date_format(ts, 'yyyy-MM-dd HH:mm:ssZ') AS a, regexp_extract(s, '(?<year>[0-9]{4})-(?:0?)([1-9]+)', 2) AS b, regexp_replace(s, '(a)(b)', '$2-$1\\$') AS c, to_timestamp(s, 'yyyy-MM-dd''T''HH:mm[:ss]XXX') AS d, POSITION('a', s, 3) AS e, format_string('%s is %5d, %-8.2f%%', s, i64, f64) AS f, s LIKE '100!%' ESCAPE '!' AS g FROM types INTO out

--- file
CREATE SINK out (a INT, b TEXT) TYPE FILE SET('out.json' AS SINK.FILE_PATH, 'json' AS SINK.FORMAT) ON edge_1
--- print_without_options
CREATE SINK out (a INT) TYPE Print
--- void
CREATE SINK nowhere (a INT) TYPE VOID
--- topic_with_key
CREATE SINK out (Car INT64, Speed FLOAT64) TYPE TOPIC WITH (topic = 'speeds', key_column = 'car')
--- kafka
CREATE SINK out (a INT) TYPE KAFKA SET('b:9092' AS SINK.BOOTSTRAP_SERVERS, 'results' AS SINK.TOPIC, 'ARROW' AS SINK.INPUT_FORMAT)
--- if_not_exists
CREATE SINK IF NOT EXISTS out (a INT) TYPE PRINT
--- refused_unknown_type
CREATE SINK out (a INT) TYPE FILES SET('x' AS SINK.FILE_PATH)
--- refused_missing_options
CREATE SINK out (a INT) TYPE KAFKA
--- refused_nested_columns_as_csv
CREATE SINK out (a ARRAY<INT>) TYPE FILE SET('x.csv' AS SINK.FILE_PATH)
--- refused_key_that_is_no_column
CREATE SINK out (car INT) TYPE TOPIC SET('t' AS SINK.TOPIC, 'cra' AS SINK.KEY_COLUMN)
--- refused_csv_option_of_a_json_file
CREATE SINK out (a INT) TYPE FILE SET('x' AS SINK.FILE_PATH, 'JSON' AS SINK.INPUT_FORMAT, true AS SINK.HEADER)
--- refused_append_that_is_no_bool
CREATE SINK out (a INT) TYPE FILE SET('x' AS SINK.FILE_PATH, 'no' AS SINK.APPEND)
--- refused_parser_scope
CREATE SINK out (a INT) TYPE FILE SET('x' AS SINK.FILE_PATH, 'CSV' AS PARSER.TYPE)
--- refused_without_columns
CREATE SINK out TYPE PRINT
--- refused_or_replace
CREATE OR REPLACE SINK out (a INT) TYPE PRINT

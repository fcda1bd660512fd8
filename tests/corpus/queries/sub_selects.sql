--- nested_sub_selects
CREATE SINK out(b INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT a + 1 AS b FROM (SELECT a FROM (SELECT vehicle AS a, speed FROM lrb WHERE speed > 3) WHERE a > 5) INTO out
--- common_table_expressions
CREATE SINK out(highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
WITH fast AS (SELECT * FROM lrb WHERE speed > 100), busy AS (SELECT highway, COUNT(*) AS n FROM fast GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) SELECT highway, n FROM busy WHERE n > 10 INTO out
--- common_table_expression_used_twice
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16, other INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
WITH counted AS (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) SELECT a.start, a.highway, b.highway AS other FROM counted a JOIN counted b ON a.start = b.start AND a.n = b.n AND a.highway < b.highway INTO out
--- column_aliases_of_with
CREATE SINK out(a INT32, b FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
WITH x(a, b) AS (SELECT vehicle, speed FROM lrb) SELECT a, b FROM x INTO out
--- column_aliases_of_a_sub_select
CREATE SINK out(a INT32, b FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT a, b FROM (SELECT vehicle, speed FROM lrb) AS x(a, b) INTO out
--- union_all
CREATE SINK out(id INT32, kind VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle AS id, 'car' AS kind FROM lrb UNION ALL SELECT CAST(id AS INT32), status FROM orders INTO out
--- union_all_widens
CREATE SINK out(n INT64, x FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT i8 AS n, f32 AS x FROM types UNION ALL SELECT vehicle, speed FROM lrb UNION ALL SELECT id, amount FROM orders INTO out
--- union_of_windowed_queries
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM orders WINDOW TUMBLING(ts, SIZE 1 MIN) UNION ALL SELECT start, COUNT(*) AS n FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- same_source_twice
CREATE SINK out(v INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle AS v FROM lrb UNION ALL SELECT highway FROM lrb INTO out
--- insert_spelling
CREATE SINK out(vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
INSERT INTO out SELECT vehicle, speed FROM lrb WHERE speed > 1
--- named_query
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
CREATE QUERY fast AS SELECT vehicle FROM lrb WHERE speed > 200 INTO out
--- with_before_brackets
CREATE SINK out(v INT32) TYPE PRINT ON edge;
WITH t AS (SELECT vehicle AS v FROM lrb) (SELECT v FROM t) INTO out
--- with_query_that_nothing_reads
CREATE SINK out(v INT32) TYPE PRINT ON edge;
WITH t AS (SELECT id FROM orders) SELECT vehicle AS v FROM lrb INTO out
--- with_query_of_which_each_use_reads_other_columns
CREATE SINK out(highway INT16, n INT64, top FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
WITH c AS (SELECT start, highway, COUNT(*) AS n, MAX(speed) AS top, SUM(position) AS unread FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN))
SELECT a.highway, a.n, b.top FROM c a JOIN c b ON a.start = b.start AND a.highway = b.highway INTO out

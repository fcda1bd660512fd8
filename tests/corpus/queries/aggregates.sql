--- every_aggregate
CREATE SINK out(a INT64 NOT NULL, b INT64 NOT NULL, c INT64, d DECIMAL(20,2), e FLOAT64, f FLOAT64, g DECIMAL(14,6), h VARCHAR, i UINT8, j FLOAT64, k FLOAT64, l BOOL, m BOOL, n INT64 NOT NULL, o FLOAT64, p FLOAT64, q FLOAT64, r INT64 NOT NULL, t DECIMAL(30,0), u FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) AS a, COUNT(s) AS b, SUM(i32) AS c, SUM(d10) AS d, SUM(f32) AS e, AVG(i64) AS f, AVG(d10) AS g, MIN(s) AS h, MAX(u8) AS i, STDDEV(f64) AS j, VAR_POP(i32) AS k, BOOL_AND(b) AS l, BOOL_OR(b) AS m, APPROX_COUNT_DISTINCT(s) AS n, PERCENTILE_APPROX(f64, 0.95) AS o, MEDIAN(i32) AS p, CORR(f64, i32) AS q, COUNT_IF(b) AS r, SUM(u64) AS t, SKEWNESS(f64) AS u FROM types WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- first_and_last_by_event_time
CREATE SINK out(start TIMESTAMP NOT NULL, a VARCHAR, b INT32, c VARCHAR, d MAP<VARCHAR, INT32>, e FLOAT64, f VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, FIRST(s) AS a, LAST(i32) AS b, FIRST(s) IGNORE NULLS AS c, LAST(tags) AS d, FIRST_VALUE(f64) AS e, ANY_VALUE(s) AS f FROM types WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- first_by_processing_time
CREATE SINK out(highway INT16, s FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, FIRST(speed) AS s FROM lrb GROUP BY highway WINDOW TUMBLING(size = 10s) INTO out
--- first_of_a_session
CREATE SINK out(vehicle INT32, entered INT16, left_at INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, FIRST(highway) AS entered, LAST(highway) AS left_at FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 1 MIN) INTO out
--- max_by_and_min_by
CREATE SINK out(fastest INT32, slowest INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT MAX_BY(vehicle, speed) AS fastest, MIN_BY(vehicle, speed) AS slowest FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- exact_distinct
CREATE SINK out(highway INT16, cars INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, COUNT(DISTINCT vehicle) AS cars FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- exact_distinct_of_several
CREATE SINK out(a INT64 NOT NULL, b INT64, c DECIMAL(14,6), d INT64 NOT NULL, e INT8, f DECIMAL(20,2), g FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(DISTINCT i32, s) AS a, SUM(DISTINCT i32) AS b, AVG(DISTINCT d10) AS c, COUNT(DISTINCT f64) AS d, MIN(DISTINCT i8) AS e, SUM(DISTINCT d10) AS f, AVG(DISTINCT i64) AS g FROM types WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- filter_clauses
CREATE SINK out(fast INT64 NOT NULL, west INT64 NOT NULL, s FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) FILTER (WHERE speed > 100) AS fast, COUNT(DISTINCT vehicle) FILTER (WHERE direction) AS west, AVG(speed) FILTER (WHERE highway = 1 AND lane > 2) AS s FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- lists_and_sets
CREATE SINK out(a ARRAY<INT32> NOT NULL, b ARRAY<VARCHAR> NOT NULL, c ARRAY<INT8> NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COLLECT_LIST(i32) AS a, COLLECT_SET(s) AS b, ARRAY_AGG(DISTINCT i8) AS c FROM types WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- having_on_an_aggregate_that_is_not_selected
CREATE SINK out(highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING MAX(speed) > 100 AND COUNT(*) > 5 INTO out
--- having_on_an_alias_and_a_key
CREATE SINK out(highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING n > 5 AND highway <> 3 INTO out
--- having_on_the_window
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING start > '2026-01-01 00:00:00' INTO out
--- alias_shadows_a_column_in_having
CREATE SINK out(highway INT16, speed FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, AVG(speed) AS speed FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING speed > 50 INTO out
--- group_by_expression_alias_and_place
CREATE SINK out(odd INT32, x VARCHAR NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway % 2 AS odd, upper('x') AS x, COUNT(*) AS n FROM lrb GROUP BY odd, 2 WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- expression_of_aggregates
CREATE SINK out(highway INT16, spread FLOAT32, mean FLOAT64, odd INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, MAX(speed) - MIN(speed) AS spread, SUM(position) / COUNT(*) AS mean, COUNT(*) * 2 + 1 AS odd FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- group_without_aggregates
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, highway FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- group_by_a_struct_field
CREATE SINK out(city VARCHAR, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT place.city AS city, COUNT(*) AS n FROM types GROUP BY place.city WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- updates_to_a_topic_with_a_key
CREATE SINK out(highway INT16, n INT64) TYPE TOPIC SET('counts' AS `SINK`.TOPIC, 'highway' AS `SINK`.KEY_COLUMN);
SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway INTO out
--- updates_to_print
CREATE SINK out(n INT64, top FLOAT32) TYPE PRINT ON edge;
SELECT COUNT(*) AS n, MAX(speed) AS top FROM lrb WHERE speed > 1 INTO out
--- updates_with_having
CREATE SINK out(highway INT16, cars INT64) TYPE PRINT ON edge;
SELECT highway, COUNT(DISTINCT vehicle) AS cars FROM lrb GROUP BY highway HAVING cars > 3 INTO out
--- aggregate_of_an_aggregate
CREATE SINK out(start TIMESTAMP NOT NULL, mean FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, AVG(n) AS mean FROM (SELECT start, vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW TUMBLING(creationTS, SIZE 1 MIN)) GROUP BY start INTO out

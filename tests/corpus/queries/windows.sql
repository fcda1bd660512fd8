--- tumbling
CREATE SINK out(start TIMESTAMP NOT NULL, end TIMESTAMP NOT NULL, highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 5 SEC) INTO out
--- sliding
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16, avgSpeed FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, highway, AVG(speed) AS avgSpeed FROM lrb GROUP BY (highway) WINDOW SLIDING(creationTS, SIZE 5 MINUTES, ADVANCE BY 1 SEC) HAVING avgSpeed < FLOAT32(40) INTO out
--- session
CREATE SINK out(start TIMESTAMP NOT NULL, end TIMESTAMP NOT NULL, vehicle INT32, top FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, vehicle, MAX(speed) AS top FROM lrb WHERE speed > 0 GROUP BY vehicle WINDOW SESSION(creationTS, GAP 30 SEC) INTO out
--- session_with_having
CREATE SINK out(vehicle INT32, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 30 SEC, LATENESS 5 SEC) HAVING COUNT(*) > 3 INTO out
--- window_before_group_by
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16, total INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, highway, SUM(position) AS total FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) GROUP BY highway INTO out
--- processing_time
CREATE SINK out(start TIMESTAMP NOT NULL, end TIMESTAMP NOT NULL, total INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, SUM(position) AS total FROM lrb WINDOW TUMBLING(size = 5s) INTO out
--- processing_time_sliding
CREATE SINK out(highway INT16, s FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, AVG(speed) AS s FROM lrb WINDOW SLIDING(size = 1 MINUTE, advance = 10 SECONDS) GROUP BY highway HAVING s > 90.0 INTO out
--- stated_lateness
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 5 SEC, LATENESS 2 MIN) INTO out
--- lateness_of_the_query
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 5 SEC) INTO out WITH (lateness = 10s, idle_timeout = 30s)
--- offset
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 DAY, OFFSET 6 HOURS) INTO out
--- spark_spelling
CREATE SINK out(s TIMESTAMP NOT NULL, e TIMESTAMP NOT NULL, highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window.start AS s, window.end AS e, highway, COUNT(*) AS n FROM lrb GROUP BY window(creationTS, '5 minutes'), highway INTO out
--- spark_spelling_of_sliding
CREATE SINK out(window STRUCT<start: TIMESTAMP, end: TIMESTAMP> NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window, COUNT(*) AS n FROM lrb GROUP BY window(creationTS, '10 seconds', '5 seconds') INTO out
--- spark_spelling_of_session
CREATE SINK out(s TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT session_window.start AS s, COUNT(*) AS n FROM lrb GROUP BY session_window(creationTS, '5 minutes'), vehicle INTO out
--- flink_tumble
CREATE SINK out(window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL, highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window_start, window_end, highway, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '5' MINUTES)) GROUP BY window_start, window_end, highway INTO out
--- flink_hop
CREATE SINK out(window_start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window_start, COUNT(*) AS n FROM HOP(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES) GROUP BY window_start, window_end INTO out
--- flink_session
CREATE SINK out(window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL, vehicle INT32, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window_start, window_end, vehicle, COUNT(*) AS n FROM SESSION(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '5' MINUTES) GROUP BY window_start, window_end, vehicle INTO out
--- window_of_rows_without_a_group
CREATE SINK out(start TIMESTAMP NOT NULL, end TIMESTAMP NOT NULL, vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, vehicle, speed FROM lrb WINDOW SLIDING(creationTS, SIZE 10 SEC, ADVANCE BY 5 SEC) INTO out
--- table_function_without_a_group
CREATE SINK out(ts TIMESTAMP, k VARCHAR, v INT32, window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT * FROM TUMBLE(TABLE mixed, DESCRIPTOR(ts), INTERVAL '5' MINUTES) INTO out
--- integer_seconds
CREATE SINK out(start TIMESTAMP NOT NULL, symbol VARCHAR, p FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, symbol, AVG(price) AS p FROM ticks GROUP BY symbol WINDOW TUMBLING(at_s UNIT SECONDS, SIZE 1 MIN) INTO out
--- integer_milliseconds
CREATE SINK out(start TIMESTAMP NOT NULL, symbol VARCHAR, p FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, symbol, AVG(price) AS p FROM ticks GROUP BY symbol WINDOW TUMBLING(at_ms UNIT MILLISECONDS, SIZE 1 MIN) INTO out
--- integer_microseconds
CREATE SINK out(start TIMESTAMP NOT NULL, symbol VARCHAR, p FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, symbol, AVG(price) AS p FROM ticks GROUP BY symbol WINDOW TUMBLING(at_us UNIT MICROSECONDS, SIZE 1 MIN) INTO out
--- integer_nanoseconds
CREATE SINK out(start TIMESTAMP NOT NULL, symbol VARCHAR, p FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, symbol, AVG(price) AS p FROM ticks GROUP BY symbol WINDOW TUMBLING(at_ns UNIT NANOSECONDS, SIZE 1 MIN) INTO out
--- computed_time
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM (SELECT to_timestamp(symbol, 'yyyy-MM-dd') AS at FROM ticks) WINDOW TUMBLING(at, SIZE 1 DAY) INTO out
--- renamed_time
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM (SELECT creationTS AS t, speed FROM lrb WHERE speed > 3) WINDOW TUMBLING(t, SIZE 1 MIN) INTO out
--- source_has_columns_called_start_and_end
CREATE SINK out(start TIMESTAMP NOT NULL, theirs TIMESTAMP, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, sessions.start AS theirs, COUNT(*) AS n FROM sessions GROUP BY sessions.start WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- window_over_windows
CREATE SINK out(start TIMESTAMP NOT NULL, most INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, MAX(n) AS most FROM (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 10 SEC)) WINDOW TUMBLING(start, SIZE 1 MIN) INTO out
--- window_over_windows_by_their_last_instant
CREATE SINK out(start TIMESTAMP NOT NULL, total INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, SUM(n) AS total FROM (SELECT window_time, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW SLIDING(creationTS, SIZE 10 SEC, ADVANCE BY 4 SEC)) WINDOW TUMBLING(window_time, SIZE 1 MIN) INTO out
--- group_by_the_window_of_a_sub_select
CREATE SINK out(start TIMESTAMP NOT NULL, most INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, MAX(n) AS most FROM (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 10 SEC)) GROUP BY start INTO out
--- window_over_a_union
CREATE SINK out(start TIMESTAMP NOT NULL, k VARCHAR, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, k, COUNT(*) AS n FROM (SELECT ts, customer AS k FROM orders UNION ALL SELECT ts, k FROM mixed) GROUP BY k WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- bounded_and_unbounded
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- bounded_only
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM ticks WINDOW TUMBLING(at_s UNIT SECONDS, SIZE 1 MIN) INTO out
--- session_of_all_rows
CREATE SINK out(start TIMESTAMP, end TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, COUNT(*) AS n FROM lrb WINDOW SESSION(creationTS, GAP 1 MIN) INTO out
--- group_by_the_sessions_of_a_sub_select
CREATE SINK out(s TIMESTAMP, e TIMESTAMP, most INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT s, e, MAX(n) AS most FROM (SELECT start AS s, end AS e, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 1 MIN)) GROUP BY s, e INTO out
--- window_over_sessions
CREATE SINK out(start TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM (SELECT vehicle, window_time, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 10 SEC)) WINDOW TUMBLING(window_time, SIZE 1 MIN) INTO out
--- windows_that_overlap_as_much_as_is_allowed
CREATE SINK out(start TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM lrb WINDOW SLIDING(creationTS, SIZE 1000 SEC, ADVANCE BY 100 SEC) INTO out
--- table_function_over_brackets
CREATE SINK out(start TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT window_start AS start, COUNT(*) AS n FROM TUMBLE(TABLE ((SELECT creationTS FROM lrb)), DESCRIPTOR(creationTS), INTERVAL '5' MINUTES) GROUP BY window_start INTO out

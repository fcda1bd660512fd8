--- distinct_within_a_window
CREATE SINK out(highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT highway FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- distinct_with_its_window
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16, lane UINT8) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT start, highway, lane FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- distinct_over_windows_below
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT n FROM (SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) INTO out
--- distinct_of_a_table_function
CREATE SINK out(window_start TIMESTAMP NOT NULL, vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT window_start, vehicle FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE) INTO out
--- distinct_of_a_grouped_select
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- top_rows
CREATE SINK out(vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, speed FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY speed DESC LIMIT 3 INTO out
--- top_groups
CREATE SINK out(start TIMESTAMP NOT NULL, highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY n DESC, highway LIMIT 5 INTO out
--- top_by_what_is_not_selected
CREATE SINK out(highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY MAX(speed) DESC NULLS LAST LIMIT 1 INTO out
--- distinct_then_top
CREATE SINK out(highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT highway FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY highway LIMIT 2 INTO out
--- flink_top_n
CREATE SINK out(window_start TIMESTAMP NOT NULL, highway INT16, n INT64 NOT NULL, rank INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT * FROM (SELECT window_start, highway, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY COUNT(*) DESC) AS rank FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, highway) WHERE rank <= 3 INTO out
--- top_n_of_a_partition
CREATE SINK out(highway INT16, vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, vehicle, speed FROM (SELECT highway, vehicle, speed, ROW_NUMBER() OVER (PARTITION BY window_start, highway ORDER BY speed DESC) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE)) WHERE rn = 1 INTO out
--- top_n_within_the_window_of_the_select
CREATE SINK out(vehicle INT32, rn INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, rn FROM (SELECT vehicle, ROW_NUMBER() OVER (PARTITION BY highway ORDER BY speed) AS rn FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN)) WHERE rn < 4 INTO out
--- qualify
CREATE SINK out(highway INT16, vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, vehicle FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE) QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, highway ORDER BY speed DESC, vehicle) <= 2 INTO out
--- latest_row_of_each_key
CREATE SINK out(vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, speed FROM (SELECT vehicle, speed, ROW_NUMBER() OVER (PARTITION BY window_start, vehicle ORDER BY creationTS DESC) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '10' SECONDS)) WHERE rn = 1 INTO out
--- top_of_a_sliding_window
CREATE SINK out(start TIMESTAMP NOT NULL, vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, vehicle, speed FROM lrb WINDOW SLIDING(creationTS, SIZE 1 MIN, ADVANCE BY 30 SEC) ORDER BY speed DESC LIMIT 1 INTO out
--- top_of_sessions
CREATE SINK out(start TIMESTAMP, vehicle INT32, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 1 MIN) ORDER BY n DESC LIMIT 3 INTO out
--- distinct_sessions
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 1 MIN) INTO out
--- top_after_a_window_join
CREATE SINK out(id INT64, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid FROM orders o JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) ORDER BY p.paid DESC LIMIT 2 INTO out
--- top_after_a_full_window_join
CREATE SINK out(id INT64, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid FROM orders o FULL JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) ORDER BY p.paid DESC, o.id LIMIT 2 INTO out
--- fetch_first
CREATE SINK out(start TIMESTAMP, highway INT16, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY n DESC FETCH FIRST 3 ROWS ONLY INTO out

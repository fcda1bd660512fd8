--- aggregate_without_a_window
CREATE SINK out(highway INT16, n INT64) TYPE FILE ON edge SET('x.csv' AS `SINK`.FILE_PATH);
SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway INTO out
--- aggregate_without_a_window_to_a_topic_without_key
CREATE SINK out(n INT64) TYPE TOPIC SET('t' AS `SINK`.TOPIC);
SELECT COUNT(*) AS n FROM lrb INTO out
--- aggregate_of_an_endless_aggregate
CREATE SINK out(m INT64) TYPE PRINT ON edge;
SELECT MAX(n) AS m FROM (SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway) INTO out
--- aggregate_of_a_windowed_aggregate_without_its_window
CREATE SINK out(m INT64) TYPE PRINT ON edge;
SELECT MAX(n) AS m FROM (SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) INTO out
--- join_without_a_bound
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id INTO out
--- join_with_one_bound_only
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.ts > o.ts INTO out
--- join_without_an_equality
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o JOIN payments p ON p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- cross_join_without_a_window
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o CROSS JOIN payments p INTO out
--- join_of_different_windows
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT x.n FROM (SELECT start, COUNT(*) AS n FROM orders WINDOW TUMBLING(ts, SIZE 1 MIN)) x JOIN (SELECT start, COUNT(*) AS m FROM payments WINDOW TUMBLING(ts, SIZE 2 MIN)) y ON x.start = y.start INTO out
--- window_join_without_the_time_column
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o JOIN ticks t ON o.customer = t.symbol WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- in_without_a_window
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments) INTO out
--- not_in
SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- in_under_or
SELECT id FROM orders WHERE amount > 5 OR id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- exists_without_an_equality
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- outer_time_is_unknown
CREATE SINK out(at_ms INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT at_ms FROM ticks WHERE symbol IN (SELECT customer FROM orders WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- correlated_aggregate
SELECT id FROM orders o WHERE id IN (SELECT order_id FROM payments p WHERE p.paid > o.amount GROUP BY order_id WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- correlated_column_in_select
SELECT id FROM orders o WHERE EXISTS (SELECT o.amount FROM payments p WHERE p.order_id = o.id AND p.ts = o.ts) INTO out
--- scalar_sub_select
SELECT id, (SELECT MAX(paid) FROM payments) AS m FROM orders INTO out
--- distinct_without_a_window
CREATE SINK out(highway INT16) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT DISTINCT highway FROM lrb INTO out
--- distinct_on
SELECT DISTINCT ON (highway) highway, vehicle FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- order_by_without_limit
SELECT vehicle FROM lrb ORDER BY vehicle INTO out
--- limit_without_order
SELECT vehicle FROM lrb LIMIT 10 INTO out
--- top_without_a_window
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb ORDER BY speed LIMIT 10 INTO out
--- offset
SELECT vehicle FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY vehicle LIMIT 10 OFFSET 5 INTO out
--- row_number_without_a_limit
CREATE SINK out(vehicle INT32, rn INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY speed) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE) INTO out
--- row_number_across_windows
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM (SELECT vehicle, ROW_NUMBER() OVER (PARTITION BY highway ORDER BY speed) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE)) WHERE rn <= 3 INTO out
--- row_number_without_order
SELECT vehicle FROM (SELECT vehicle, ROW_NUMBER() OVER (PARTITION BY window_start) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE)) WHERE rn <= 3 INTO out
--- row_number_without_over
SELECT ROW_NUMBER() AS n FROM lrb INTO out
--- lag
SELECT vehicle, LAG(speed) OVER (PARTITION BY vehicle ORDER BY creationTS) AS before FROM lrb INTO out
--- sum_over
SELECT vehicle, SUM(speed) OVER (PARTITION BY vehicle) AS total FROM lrb INTO out
--- rank
SELECT vehicle, RANK() OVER (ORDER BY speed) AS r FROM lrb INTO out
--- union_distinct
SELECT id FROM orders UNION SELECT order_id FROM payments INTO out
--- intersect
SELECT id FROM orders INTERSECT SELECT order_id FROM payments INTO out
--- except
SELECT id FROM orders EXCEPT SELECT order_id FROM payments INTO out
--- rand_in_exactly_once
SELECT vehicle, rand() AS r, uuid() AS u FROM lrb INTO out
--- first_without_a_window
CREATE SINK out(highway INT16, s FLOAT32) TYPE PRINT ON edge;
SELECT highway, FIRST(speed) AS s FROM lrb GROUP BY highway INTO out
--- session_of_rows
CREATE SINK out(start TIMESTAMP NOT NULL, vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, vehicle FROM lrb WINDOW SESSION(creationTS, GAP 1 MIN) INTO out
--- window_over_the_end_of_windows
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) AS n FROM (SELECT end, COUNT(*) AS m FROM lrb WINDOW TUMBLING(creationTS, SIZE 10 SEC)) WINDOW TUMBLING(end, SIZE 1 MIN) INTO out
--- windows_that_do_not_fit
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) AS n FROM (SELECT start AS s, COUNT(*) AS m FROM lrb WINDOW TUMBLING(creationTS, SIZE 7 SEC)) WINDOW TUMBLING(s, SIZE 1 MIN) INTO out
--- two_event_times_of_one_stream
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) AS n FROM (SELECT sent AS t, order_id FROM shipments WHERE order_id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN))) WINDOW TUMBLING(t, SIZE 1 MIN) INTO out
--- time_of_both_sides
CREATE SINK out(n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COUNT(*) AS n FROM (SELECT greatest(o.ts, p.ts) AS t FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR) WINDOW TUMBLING(t, SIZE 1 MIN) INTO out
--- rollup
SELECT highway, COUNT(*) AS n FROM lrb GROUP BY ROLLUP (highway) WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- explode
SELECT explode(ints) AS i FROM types INTO out
--- lateral_view
SELECT vehicle FROM lrb LATERAL VIEW explode(ARRAY(1)) t AS x INTO out
--- tablesample
SELECT vehicle FROM lrb TABLESAMPLE (10 PERCENT) INTO out
--- natural_join
SELECT id FROM orders NATURAL JOIN payments INTO out
--- recursive
WITH RECURSIVE x AS (SELECT vehicle FROM lrb) SELECT vehicle FROM x INTO out
--- aggregate_in_where
SELECT vehicle FROM lrb WHERE COUNT(*) > 3 INTO out
--- select_without_from
SELECT 1 AS a INTO out
--- values
VALUES (1) INTO out
--- lambda
SELECT transform(ints, x -> x + 1) AS a FROM types INTO out
--- at_time_zone
SELECT ts AT TIME ZONE 'UTC' AS a FROM orders INTO out
--- collate
SELECT customer COLLATE utf8_binary AS a FROM orders INTO out
--- named_window
SELECT SUM(speed) OVER w AS a FROM lrb WINDOW w AS (PARTITION BY vehicle) INTO out
--- pivot
SELECT * FROM lrb PIVOT (COUNT(*) FOR highway IN (1, 2)) INTO out
--- like_any
SELECT id FROM orders WHERE customer LIKE ANY ('a%', 'b%') INTO out
--- distinct_in_stddev
SELECT STDDEV(DISTINCT speed) AS s FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- lateness_without_a_window
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb INTO out WITH (lateness = 5s)
--- start_without_a_topic
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb INTO out WITH (start = latest)
--- table_function_that_is_not_known
SELECT a FROM generate_series(1, 5) INTO out
--- schema_qualified_source
SELECT vehicle FROM plant.lrb INTO out
--- trim_of_two
SELECT rtrim('x', customer) AS a FROM orders INTO out
--- trim_of_two_on_both_sides
SELECT trim(customer, 'x') AS a FROM orders INTO out
--- key_of_the_sink_is_not_that_of_the_groups
CREATE SINK out(highway INT16, lane UINT8, n INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC, 'highway' AS `SINK`.KEY_COLUMN);
SELECT highway, lane, COUNT(*) AS n FROM lrb GROUP BY highway, lane INTO out
--- key_of_the_sink_where_there_is_one_row
CREATE SINK out(n INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC, 'n' AS `SINK`.KEY_COLUMN);
SELECT COUNT(*) AS n FROM lrb INTO out
--- window_over_a_time_that_a_join_has_not_passed_on
CREATE SINK out(start TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR LEFT JOIN shipments s ON s.order_id = o.id AND s.ts BETWEEN p.ts AND p.ts + INTERVAL 1 HOUR WINDOW TUMBLING(o.ts, SIZE 1 MIN) INTO out
--- sessions_by_their_start_alone
CREATE SINK out(start TIMESTAMP, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, MAX(n) AS n FROM (SELECT start, end, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 1 MIN)) GROUP BY start INTO out
--- windows_that_overlap_without_end
SELECT COUNT(*) AS a FROM lrb WINDOW SLIDING(creationTS, SIZE 365 DAYS, ADVANCE BY 1 MS) INTO out
--- windows_of_a_table_function_that_overlap_too_much
SELECT COUNT(*) AS a FROM HOP(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' SECOND, INTERVAL '1' HOUR) GROUP BY window_start INTO out
--- window_over_an_anti_join_of_another_time
SELECT CAST(o.id AS INT32) AS a FROM orders o ANTI JOIN ticks t ON o.id = t.at_s WINDOW TUMBLING(ts, SIZE 5 SEC) INTO out

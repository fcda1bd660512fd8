--- inner_within_a_time_range
CREATE SINK out(id INT64 NOT NULL, amount DECIMAL(12,2), paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, o.amount, p.paid FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- left_within_a_time_range
CREATE SINK out(id INT64 NOT NULL, method VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.method FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.ts >= o.ts AND p.ts < o.ts + INTERVAL '30' MINUTES INTO out
--- right_within_a_time_range
CREATE SINK out(customer VARCHAR, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.customer, p.paid FROM orders o RIGHT JOIN payments p ON o.id = p.order_id AND o.ts BETWEEN p.ts - INTERVAL 1 HOUR AND p.ts INTO out
--- full_within_a_time_range
CREATE SINK out(id INT64, amount DECIMAL(12,2), paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT COALESCE(o.id, p.order_id) AS id, o.amount, p.paid FROM orders o FULL JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL 10 SECONDS AND o.ts + INTERVAL 10 SECONDS INTO out
--- conditions_in_where
CREATE SINK out(id INT64 NOT NULL, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid FROM orders o, payments p WHERE o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR AND o.status = 'open' INTO out
--- equal_times
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND o.ts = p.ts INTO out
--- three_streams
CREATE SINK out(id INT64 NOT NULL, paid DECIMAL(12,2), carrier VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid, s.carrier FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR LEFT JOIN shipments s ON o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL 1 DAY INTO out
--- inner_within_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, id INT64 NOT NULL, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id, p.paid FROM orders o JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- left_within_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, end TIMESTAMP NOT NULL, id INT64 NOT NULL, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, end, o.id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- right_within_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, order_id INT64, amount DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, p.order_id, o.amount FROM orders o RIGHT JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- full_within_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, id INT64, order_id INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id, p.order_id FROM orders o FULL JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- full_within_a_window_then_group
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL, orders INT64 NOT NULL, payments INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n, COUNT(o.id) AS orders, COUNT(p.order_id) AS payments FROM orders o FULL JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- sliding_window_join
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id WINDOW SLIDING(ts, SIZE 1 MIN, ADVANCE BY 30 SEC) INTO out
--- three_streams_within_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, id INT64 NOT NULL, paid DECIMAL(22,2), carrier VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id, SUM(p.paid) AS paid, LAST(s.carrier) AS carrier FROM orders o JOIN payments p ON o.id = p.order_id LEFT JOIN shipments s ON s.order_id = o.id GROUP BY o.id WINDOW TUMBLING(ts, SIZE 5 MIN) INTO out
--- cross_join_within_a_window
CREATE SINK out(id INT64 NOT NULL, order_id INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.order_id FROM orders o CROSS JOIN payments p WINDOW TUMBLING(ts, SIZE 10 SEC) INTO out
--- join_by_using
CREATE SINK out(vehicle INT32, before FLOAT32, after FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, a.speed AS before, b.speed AS after FROM lrb a JOIN lrb b USING (vehicle) WHERE b.creationTS BETWEEN a.creationTS + INTERVAL 1 SECOND AND a.creationTS + INTERVAL 1 MINUTE INTO out
--- self_join_in_a_window
CREATE SINK out(start TIMESTAMP NOT NULL, vehicle INT32, other INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, a.vehicle, b.vehicle AS other FROM lrb a JOIN lrb b ON a.highway = b.highway AND a.vehicle < b.vehicle WINDOW TUMBLING(creationTS, SIZE 5 SEC) INTO out
--- nebulastream_join_of_sub_selects
CREATE SINK out(ts TIMESTAMP, id INT64 NOT NULL, amount DECIMAL(12,2), ts2 TIMESTAMP, paid_at TIMESTAMP, order_id INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT * FROM (SELECT ts, id, amount FROM orders) INNER JOIN (SELECT ts AS ts2, ts AS paid_at, order_id FROM payments) ON id = order_id AND paid_at BETWEEN ts AND ts + INTERVAL 5 SECONDS INTO out
--- windows_of_both_sides_equated
CREATE SINK out(start TIMESTAMP NOT NULL, k VARCHAR, n INT64 NOT NULL, m INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT x.start, x.k, x.n, y.n AS m FROM (SELECT start, customer AS k, COUNT(*) AS n FROM orders GROUP BY customer WINDOW TUMBLING(ts, SIZE 1 MIN)) x JOIN (SELECT start, method AS k, COUNT(*) AS n FROM payments GROUP BY method WINDOW TUMBLING(ts, SIZE 1 MIN)) y ON x.start = y.start AND x.k = y.k INTO out
--- flink_window_join
CREATE SINK out(id INT64 NOT NULL, paid DECIMAL(12,2), window_start TIMESTAMP NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT l.id, r.paid, l.window_start FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE) l LEFT JOIN TUMBLE(TABLE payments, DESCRIPTOR(ts), INTERVAL '1' MINUTE) r ON l.id = r.order_id AND l.window_start = r.window_start AND l.window_end = r.window_end INTO out
--- join_then_window
CREATE SINK out(start TIMESTAMP NOT NULL, status VARCHAR, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.status, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR GROUP BY o.status WINDOW TUMBLING(o.ts, SIZE 1 MIN) INTO out
--- rows_and_windows_within_a_range
CREATE SINK out(id INT64 NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, w.n FROM orders o JOIN (SELECT start, order_id, COUNT(*) AS n FROM payments GROUP BY order_id WINDOW TUMBLING(ts, SIZE 1 MIN)) w ON o.id = w.order_id AND w.start BETWEEN o.ts - INTERVAL 2 MINUTES AND o.ts INTO out
--- left_join_filters_stay_where_they_belong
CREATE SINK out(id INT64 NOT NULL, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR AND p.paid > 5 AND o.amount > 7 WHERE o.status = 'open' AND p.method IS NULL INTO out
--- first_and_last_of_each_side
CREATE SINK out(start TIMESTAMP NOT NULL, a VARCHAR, b VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, FIRST(o.status) AS a, LAST(p.method) AS b FROM orders o JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- computed_times_in_a_range
CREATE SINK out(symbol VARCHAR, price FLOAT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT a.symbol, b.price FROM ticks a JOIN ticks b ON a.symbol = b.symbol AND timestamp_millis(b.at_ms) BETWEEN timestamp_millis(a.at_ms) AND timestamp_millis(a.at_ms) + INTERVAL 1 SECOND INTO out
--- processing_time_join
CREATE SINK out(id INT64 NOT NULL, paid DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, p.paid FROM orders o JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(size = 10s) INTO out
--- left_semi_join_spelled_out
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o LEFT SEMI JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- full_joins_of_three_streams_within_a_window
CREATE SINK out(start TIMESTAMP, o INT64, p INT64, s INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id AS o, p.order_id AS p, s.order_id AS s FROM orders o FULL JOIN payments p ON o.id = p.order_id FULL JOIN shipments s ON s.order_id = o.id WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- window_named_by_one_side
CREATE SINK out(start TIMESTAMP, id INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id FROM orders o JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(p.ts, SIZE 1 MIN) INTO out
--- window_join_with_a_windowed_sub_select
CREATE SINK out(start TIMESTAMP, id INT64, n INT64) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, o.id, w.n FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE) o JOIN (SELECT start, order_id, COUNT(*) AS n FROM payments GROUP BY order_id WINDOW TUMBLING(ts, SIZE 1 MIN)) w ON o.id = w.order_id AND o.window_start = w.start INTO out
--- join_below_a_time_range_join
CREATE SINK out(id INT64, carrier VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT x.id, s.carrier FROM (SELECT o.id, p.ts AS paid_at FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR) x JOIN shipments s ON s.order_id = x.id AND s.ts BETWEEN x.paid_at AND x.paid_at + INTERVAL 1 DAY INTO out

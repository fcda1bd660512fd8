--- in_a_windowed_sub_select
CREATE SINK out(id INT64 NOT NULL, amount DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id, amount FROM orders WHERE id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- in_the_same_window
CREATE SINK out(start TIMESTAMP NOT NULL, customer VARCHAR, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, customer, COUNT(*) AS n FROM orders WHERE id IN (SELECT order_id FROM payments WHERE paid > 0 WINDOW TUMBLING(ts, SIZE 1 MIN)) GROUP BY customer WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- in_a_grouped_window
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments GROUP BY order_id WINDOW TUMBLING(ts, SIZE 1 MIN) HAVING COUNT(*) > 1) INTO out
--- in_another_window
CREATE SINK out(start TIMESTAMP NOT NULL, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS n FROM orders WHERE id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 10 SEC)) WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- several_columns
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders WHERE (id, amount) IN (SELECT order_id, paid FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) INTO out
--- exists_within_a_time_range
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 5 MINUTES AND p.paid > 10) INTO out
--- exists_within_a_window
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id WINDOW TUMBLING(ts, SIZE 1 MIN)) AND o.status = 'open' INTO out
--- not_exists
CREATE SINK out(id INT64 NOT NULL, amount DECIMAL(12,2)) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT o.id, o.amount FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR) INTO out
--- not_exists_then_group
CREATE SINK out(start TIMESTAMP NOT NULL, unpaid INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT start, COUNT(*) AS unpaid FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR) WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- two_semi_joins
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders o WHERE id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) AND EXISTS (SELECT 1 FROM shipments s WHERE s.order_id = o.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL 1 DAY) INTO out
--- in_a_sliding_window
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments WINDOW SLIDING(ts, SIZE 1 MIN, ADVANCE BY 10 SEC)) INTO out
--- semi_join_in_a_session
CREATE SINK out(customer VARCHAR, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT customer, COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR) GROUP BY customer WINDOW SESSION(ts, GAP 5 MIN) INTO out

--- text_plus_number
SELECT customer + 1 AS a FROM orders INTO out
--- text_compared_with_number
SELECT id FROM orders WHERE customer = 5 INTO out
--- timestamp_plus_number
SELECT ts + 5 AS a FROM orders INTO out
--- condition_that_is_none
SELECT vehicle FROM lrb WHERE speed INTO out
--- wrong_argument
SELECT upper(id) AS a FROM orders INTO out
--- wrong_number_of_arguments
SELECT substring(customer) AS a, pi(1) AS b FROM orders INTO out
--- literal_needed
SELECT round(amount, id) AS a FROM orders INTO out
--- no_regular_expression
SELECT regexp_extract(customer, '(', 1) AS a FROM orders INTO out
--- no_common_type
SELECT CASE WHEN direction THEN 1 ELSE 'x' END AS a, COALESCE(vehicle, 'x') AS b FROM lrb INTO out
--- cast_that_is_not_defined
SELECT CAST(id AS TIMESTAMP) AS a, CAST(ts AS INT64) AS b FROM orders INTO out
--- no_date
SELECT id FROM orders WHERE ts > 'yesterday' INTO out
--- union_of_different_widths
SELECT id FROM orders UNION ALL SELECT order_id, paid FROM payments INTO out
--- union_of_different_types
SELECT id FROM orders UNION ALL SELECT method FROM payments INTO out
--- in_of_different_types
SELECT id FROM orders WHERE id IN (1, 'two') INTO out
--- sum_of_text
SELECT SUM(customer) AS a FROM orders WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- event_time_is_text
SELECT COUNT(*) AS n FROM orders WINDOW TUMBLING(customer, SIZE 1 MIN) INTO out
--- event_time_is_an_integer_without_unit
SELECT COUNT(*) AS n FROM ticks WINDOW TUMBLING(at_ms, SIZE 1 MIN) INTO out
--- unit_of_a_timestamp
SELECT COUNT(*) AS n FROM orders WINDOW TUMBLING(ts UNIT SECONDS, SIZE 1 MIN) INTO out
--- sink_column_too_narrow
CREATE SINK out(id INT32) TYPE PRINT ON edge;
SELECT id FROM orders INTO out
--- sink_lacks_a_column
CREATE SINK out(id INT64) TYPE PRINT ON edge;
SELECT id, amount FROM orders INTO out
--- query_lacks_a_column
CREATE SINK out(id INT64, amount DECIMAL(12,2), note VARCHAR) TYPE PRINT ON edge;
SELECT id, amount FROM orders INTO out
--- misspelt_sink_column
CREATE SINK out(highway INT16, avgSpeed FLOAT64) TYPE PRINT ON edge;
SELECT highway, AVG(speed) AS avgSped FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- column_without_a_name
CREATE SINK out(highway INT16, n INT64) TYPE PRINT ON edge;
SELECT highway, COUNT(*) FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- column_comes_twice
CREATE SINK out(ts TIMESTAMP, id INT64) TYPE PRINT ON edge;
SELECT o.ts, p.ts, o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- null_into_not_null
CREATE SINK out(customer VARCHAR NOT NULL) TYPE PRINT ON edge;
SELECT customer FROM orders INTO out
--- outer_join_makes_null
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge;
SELECT o.id FROM payments p LEFT JOIN orders o ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- signed_into_unsigned
CREATE SINK out(n UINT64) TYPE PRINT ON edge;
SELECT COUNT(*) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- several_sink_columns_together
CREATE SINK out(id INT8, amount INT32, status INT64) TYPE PRINT ON edge;
SELECT id, amount, status FROM orders INTO out
--- interval_into_a_sink
CREATE SINK out(d INT64) TYPE PRINT ON edge;
SELECT sent - ts AS d FROM shipments INTO out
--- aggregate_around_an_aggregate
SELECT SUM(COUNT(*)) AS n FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- group_by_a_map
SELECT COUNT(*) AS n FROM types GROUP BY tags WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out
--- too_many_digits
SELECT 123456789012345678901234567890123456789 AS a FROM lrb INTO out
--- no_json_path
SELECT get_json_object(doc, 'a.b') AS a FROM types INTO out
--- unknown_unit_of_time
SELECT ts + INTERVAL '5' FORTNIGHTS AS a FROM orders INTO out

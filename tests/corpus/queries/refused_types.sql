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
--- regular_expression_with_a_group_of_python
SELECT regexp_replace(s, '(?P<n>a)', '') AS a FROM types INTO out
--- regular_expression_with_a_condition
SELECT vehicle AS a FROM lrb WHERE regexp_like('x', '(?(1)a|b)') INTO out
--- regular_expression_with_an_unknown_escape
SELECT i32 AS a FROM types WHERE s RLIKE '\\y' INTO out
--- regular_expression_that_looks_behind_without_a_bound
SELECT i32 AS a FROM types WHERE regexp_like(s, '(?<=a*)b') INTO out
--- group_that_the_pattern_has_not
SELECT regexp_extract(s, '(a)', 5) AS a FROM types INTO out
--- first_group_of_a_pattern_without_one
SELECT regexp_extract(s, 'a+') AS a FROM types INTO out
--- replacement_with_a_group_that_the_pattern_has_not
SELECT regexp_replace(s, 'a', '$1') AS a FROM types INTO out
--- pattern_of_a_time_with_too_many_letters
SELECT date_format(ts, 'EEEEEEE') AS a FROM types INTO out
--- pattern_that_can_be_written_and_not_read
SELECT to_timestamp(s, 'QQQQQQ') AS a FROM types INTO out
--- pattern_of_a_time_with_an_open_quote
SELECT date_format(ts, 'yyyy''T') AS a FROM types INTO out
--- format_that_does_not_fit_its_argument
SELECT format_string('%d', s) AS a FROM types INTO out
--- format_with_too_few_arguments
SELECT format_string('%s %s', s) AS a FROM types INTO out
--- format_of_a_time
SELECT format_string('%s', ts) AS a FROM types INTO out
--- like_that_ends_with_its_escape
SELECT i32 AS a FROM types WHERE s LIKE 'a!' ESCAPE '!' INTO out
--- like_that_escapes_what_needs_none
SELECT i32 AS a FROM types WHERE s NOT LIKE 'a!b' ESCAPE '!' INTO out
--- date_that_is_none
SELECT i32 AS a FROM types WHERE day = DATE 'x' INTO out
--- json_type_that_ends_too_soon
SELECT from_json(doc, 'a INT, b') AS a FROM types INTO out

--- realtime_topic_to_topic
CREATE SINK out(id INT64 NOT NULL, amount DECIMAL(12,2)) TYPE TOPIC SET('big' AS `SINK`.TOPIC);
SELECT id, amount FROM orders WHERE amount > 100 INTO out WITH (mode = realtime, start = latest)
--- realtime_takes_random_values
CREATE SINK out(id INT64 NOT NULL, r FLOAT64 NOT NULL, u VARCHAR) TYPE KAFKA SET('k:9092' AS `SINK`.BOOTSTRAP_SERVERS, 'x' AS `SINK`.TOPIC);
SELECT id, rand() AS r, uuid() AS u FROM orders INTO out WITH (mode = realtime)
--- realtime_union
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC);
SELECT id FROM orders UNION ALL SELECT order_id FROM payments INTO out WITH (mode = realtime)
--- exactly_once_to_a_topic_has_a_sink_fragment
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out
--- exactly_once_to_kafka_on_an_agent
CREATE SINK out(id INT64) TYPE KAFKA ON edge SET('k:9092' AS `SINK`.BOOTSTRAP_SERVERS, 'x' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out
--- at_least_once_to_a_topic
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out WITH (delivery = at_least_once)
--- at_least_once_from_files
CREATE SINK out(vehicle INT32, n INT64) TYPE KAFKA SET('k:9092' AS `SINK`.BOOTSTRAP_SERVERS, 'x' AS `SINK`.TOPIC);
SELECT vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out WITH (delivery = 'at_least_once')
--- nowhere
CREATE SINK out(id INT64) TYPE VOID;
SELECT id FROM orders INTO out
--- start_at_a_time
CREATE SINK out(id INT64) TYPE VOID;
SELECT id FROM orders INTO out WITH (start = '2026-01-01 00:00:00')
--- refused_realtime_group_by
CREATE SINK out(status VARCHAR, n INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT status, COUNT(*) AS n FROM orders GROUP BY status WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out WITH (mode = realtime)
--- refused_realtime_join
CREATE SINK out(id INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts = o.ts INTO out WITH (mode = realtime)
--- refused_realtime_from_a_file
CREATE SINK out(vehicle INT32) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT vehicle FROM lrb INTO out WITH (mode = realtime)
--- refused_realtime_to_a_file
CREATE SINK out(id INT64) TYPE FILE ON edge SET('x.csv' AS `SINK`.FILE_PATH);
SELECT id FROM orders INTO out WITH (mode = realtime)
--- refused_realtime_exactly_once
CREATE SINK out(id INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out WITH (mode = realtime, delivery = exactly_once)
--- refused_at_least_once_to_a_file
CREATE SINK out(id INT64) TYPE FILE ON edge SET('x.csv' AS `SINK`.FILE_PATH);
SELECT id FROM orders INTO out WITH (delivery = at_least_once)
--- refused_lateness_in_realtime
CREATE SINK out(id INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out WITH (mode = realtime, lateness = 5s)
--- updates_under_a_constant_key
CREATE SINK out(k VARCHAR, n INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC, 'k' AS `SINK`.KEY_COLUMN);
SELECT 'all' AS k, COUNT(*) AS n FROM lrb INTO out
--- exactly_once_to_a_topic_of_arrow_records
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC, 'ARROW' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders INTO out
--- refused_at_least_once_to_arrow_records
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC, 'ARROW' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders INTO out WITH (delivery = at_least_once)
--- refused_realtime_to_arrow_records
CREATE SINK out(id INT64) TYPE KAFKA SET('k:9092' AS `SINK`.BOOTSTRAP_SERVERS, 'x' AS `SINK`.TOPIC, 'ARROW' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders INTO out WITH (mode = realtime)
--- refused_realtime_from_arrow_records
CREATE LOGICAL SOURCE packed(id INT64);
CREATE PHYSICAL SOURCE packed_topic FOR packed TYPE TOPIC SET('packed' AS `SOURCE`.TOPIC, 'ARROW' AS PARSER.`TYPE`);
CREATE SINK out(id INT64) TYPE TOPIC SET('ids' AS `SINK`.TOPIC);
SELECT id FROM packed INTO out WITH (mode = realtime)
--- kafka_edges_from_a_file_to_a_file
CREATE SINK out(vehicle INT32, n INT64) TYPE FILE ON edge SET('x.csv' AS `SINK`.FILE_PATH);
SELECT vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out WITH (edges = 'kafka', bootstrap_servers = 'k:9092', security_protocol = 'SASL_SSL', sasl_mechanism = 'PLAIN', sasl_username = 'u', sasl_password = 'hidden')
--- kafka_edges_before_a_topic_that_spark_writes
CREATE SINK out(vehicle INT32) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT vehicle FROM lrb INTO out WITH (edges = kafka, bootstrap.servers = 'k:9092', delivery = at_least_once)
--- edges_in_the_log_are_the_default
CREATE SINK out(id INT64) TYPE VOID;
SELECT id FROM orders INTO out WITH (edges = 'log')
--- refused_kafka_edges_without_brokers
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (edges = 'kafka')
--- refused_kafka_edges_with_options_that_do_not_fit
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (edges = 'kafka', bootstrap_servers = 'k', sasl_password = 'hidden', brokers = 'k:1')
--- refused_kafka_edges_with_a_password_that_nobody_asks_for
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (edges = 'kafka', bootstrap_servers = 'k:9092', sasl_password = 'hidden')
--- refused_brokers_without_kafka_edges
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (bootstrap_servers = 'k:9092')
--- refused_edges_elsewhere
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (edges = 'pulsar')
--- refused_kafka_edges_in_real_time
CREATE SINK out(id INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out WITH (mode = realtime, edges = 'kafka', bootstrap_servers = 'k:9092')
--- refused_kafka_edges_exactly_once
CREATE SINK out(vehicle INT32) TYPE VOID;
SELECT vehicle FROM lrb INTO out WITH (edges = 'kafka', bootstrap_servers = 'k:9092', delivery = exactly_once)
--- refused_kafka_edges_without_an_edge
CREATE SINK out(id INT64) TYPE TOPIC SET('x' AS `SINK`.TOPIC);
SELECT id FROM orders INTO out WITH (delivery = at_least_once, edges = 'kafka', bootstrap_servers = 'k:9092')

--- plain
CREATE TOPIC orders
--- partitions_and_settings
CREATE TOPIC IF NOT EXISTS orders PARTITIONS 6 WITH (durability = 'WAL', retention = '24 h')
--- every_setting
CREATE TOPIC t PARTITIONS 10000 GROUP 'hot' WITH (durability = 'object', format = 'ARROW', retention = 0 s, retention_bytes = '10 GiB', segment_bytes = '64 MiB', segment_age = 90 SEC, linger = 250 ms, max_message_bytes = 2097152)
--- names_of_kafka
CREATE TOPIC t WITH ('retention.ms' = 86400000, retention.bytes = -1, "segment.ms" = 60000, 'headgate.linger.ms' = '5', 'max.message.bytes' = 1024, 'headgate.durability' = WAL)
--- set_says_the_same
CREATE TOPIC t SET('WAL' AS durability, '7 days' AS retention)
--- case_is_kept
CREATE TOPIC Orders; CREATE TOPIC "Orders"; DROP TOPIC OrDeRs; DESCRIBE TOPIC Orders; SHOW PARTITIONS FOR TOPIC Orders
--- dots_and_dashes
CREATE TOPIC shop.orders-v1.2_x; CREATE TOPIC "shop.orders"; CREATE TOPIC shop_orders; DROP TOPIC IF EXISTS shop.orders
--- digits_first
CREATE TOPIC 2026.orders; CREATE TOPIC "0"
--- shown_and_watched
SHOW TOPICS LIKE 'order%'; SHOW TOPICS WHERE internal LIMIT 3; SHOW PARTITIONS WHERE leader = ''; SHOW PARTITIONS FOR orders; SHOW TRANSFERS FOR orders; WATCH SELECT * FROM topics; WATCH SELECT leader, epoch FROM partitions WHERE topic = 'orders'; WATCH SELECT state FROM transfers
--- refused_names
CREATE TOPIC "two words"
--- refused_dot
CREATE TOPIC "."
--- refused_dots
DROP TOPIC ".."
--- refused_long_name
CREATE TOPIC aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
--- refused_no_name
CREATE TOPIC
--- refused_partitions
CREATE TOPIC t PARTITIONS 10001
--- refused_setting
CREATE TOPIC t WITH (retension = '1 h')
--- refused_compaction
CREATE TOPIC t WITH ('cleanup.policy' = 'compact')
--- refused_replication
CREATE TOPIC t WITH ('replication.factor' = 3)
--- refused_durability
CREATE TOPIC t WITH (durability = 'DISK')
--- refused_duration
CREATE TOPIC t WITH (retention = 'a while')
--- refused_size
CREATE TOPIC t WITH (segment_bytes = '1.5 MB')
--- refused_same_setting_twice
CREATE TOPIC t WITH (retention = '1 h', 'retention.ms' = 5)
--- refused_scope
CREATE TOPIC t SET('WAL' AS SINK.durability)
--- refused_partitions_of_with
CREATE TOPIC t WITH (partitions = 3)
--- refused_rest
CREATE TOPIC t PARTITIONS 3 REPLICAS 2
--- altered
ALTER TOPIC Shop.orders-v1 SET (retention = '24 h', 'retention.bytes' = '10 GiB'); ALTER TOPIC t SET ('5 ms' AS linger)
--- altered_and_reset
ALTER TOPIC orders SET (retention.ms = 60000) RESET (linger, 'max.message.bytes')
--- refused_alter_durability
ALTER TOPIC t SET (durability = 'WAL')
--- refused_alter_partitions
ALTER TOPIC t SET (partitions = 12)
--- refused_alter_group
ALTER TOPIC t RESET (group)
--- refused_alter_compaction
ALTER TOPIC t SET ('cleanup.policy' = 'compact')
--- refused_alter_unknown
ALTER TOPIC t RESET (retension)
--- refused_alter_range
ALTER TOPIC t SET (segment_bytes = 0)
--- refused_alter_twice
ALTER TOPIC t SET (retention = '1 h') RESET (retention.ms)
--- refused_alter_nothing
ALTER TOPIC t
--- refused_alter_empty
ALTER TOPIC t SET ()
--- refused_alter_with
ALTER TOPIC t WITH (retention = '1 h')
--- refused_alter_no_value
ALTER TOPIC t SET (retention)
--- refused_alter_other
ALTER SINK s SET (retention = '1 h')
--- altered_for_good
ALTER TOPIC t SET ('retention.ms' = -1, 'retention.bytes' = '-1'); ALTER TOPIC t SET (retention = 0 s, retention_bytes = 0)
--- refused_alter_to_nothing
ALTER TOPIC t SET ('retention.ms' = 0)

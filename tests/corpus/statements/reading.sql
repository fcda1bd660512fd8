--- show
SHOW AGENTS; SHOW WORKERS; SHOW SOURCES; SHOW LOGICAL SOURCES; SHOW PHYSICAL SOURCES; SHOW SINKS; SHOW QUERIES; SHOW FRAGMENTS; SHOW NETWORK LINKS; SHOW LINKS; SHOW TOPICS
--- show_filtered
SHOW QUERIES WHERE state IN ('RUNNING', 'DEPLOYING') AND name LIKE 'fast%' LIMIT 10; SHOW PHYSICAL SOURCES FOR lrb; SHOW FRAGMENTS FOR QUERY "Q"; SHOW SINKS LIKE 'out%'
--- describe
DESCRIBE lrb; DESC lrb; DESCRIBE LOGICAL SOURCE lrb; DESCRIBE PHYSICAL SOURCE p; DESCRIBE SINK out; DESCRIBE QUERY q; DESCRIBE AGENT a; DESCRIBE TOPIC t; DESCRIBE sink
--- watch
WATCH SELECT * FROM queries; WATCH SELECT name, state, waiting.reason FROM queries WHERE state <> 'RUNNING' AND waiting.message LIKE '%unreachable%'; WATCH SELECT uid FROM fragments
--- topics
CREATE TOPIC readings; CREATE TOPIC IF NOT EXISTS "Readings" PARTITIONS 12 WITH (durability = 'WAL', retention = 7 days); DROP TOPIC readings; DROP TOPIC IF EXISTS readings
--- drops
DROP LOGICAL SOURCE s; DROP LOGICAL SOURCE IF EXISTS s; DROP PHYSICAL SOURCE p; DROP PHYSICAL SOURCE IF EXISTS p; DROP SINK out; DROP SINK IF EXISTS out
--- refused_unknown_kind
SHOW QUERYS
--- refused_for_of_sinks
SHOW SINKS FOR lrb
--- refused_empty_condition
SHOW QUERIES WHERE LIMIT 3
--- refused_limit_of_nothing
SHOW QUERIES LIMIT 0
--- refused_watch_of_sources_that_there_are_not
WATCH SELECT * FROM wrokers
--- refused_watch_with_group_by
WATCH SELECT state FROM agents WHERE state = 'ACTIVE' GROUP BY state
--- refused_watch_with_a_function
WATCH SELECT count(name) FROM agents
--- refused_watch_without_select
WATCH agents
--- refused_describe_of_two
DESCRIBE a b
--- refused_drop_source
DROP SOURCE s
--- refused_drop_of_something_else
DROP SINKS out
--- refused_partitions
CREATE TOPIC t PARTITIONS 0

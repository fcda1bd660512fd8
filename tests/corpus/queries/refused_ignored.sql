--- limit_percent
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY a LIMIT 3 PERCENT INTO out
--- limit_by
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY a LIMIT 3 BY highway INTO out
--- limit_with_ties
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY a LIMIT 3 ROWS WITH TIES INTO out
--- fetch_with_ties
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY a FETCH FIRST 3 ROWS WITH TIES INTO out
--- fetch_percent
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY a FETCH FIRST 3 PERCENT ROWS ONLY INTO out
--- with_query_twice
WITH t AS (SELECT vehicle AS a FROM lrb), t AS (SELECT 1 AS a FROM lrb) SELECT a FROM t INTO out
--- with_query_that_nothing_reads
WITH t AS (SELECT nonsense FROM nowhere) SELECT vehicle AS a FROM lrb INTO out
--- with_query_that_only_an_unread_one_reads
WITH u AS (SELECT nonsense FROM lrb), t AS (SELECT * FROM u) SELECT vehicle AS a FROM lrb INTO out
--- names_of_a_with_query_that_nothing_reads
WITH t(x, y) AS (SELECT vehicle FROM lrb) SELECT vehicle AS a FROM lrb INTO out
--- lateness_beside_that_of_every_window
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 5 SEC, LATENESS 5 SEC) INTO out WITH (lateness = 6s)
--- lateness_of_processing_time
SELECT MAX(vehicle) AS a FROM lrb WINDOW TUMBLING(SIZE 5 SEC) INTO out WITH (lateness = 6s)
--- count_of_some_columns_of_star
SELECT COUNT(* EXCEPT (vehicle)) AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- alias_within_brackets_and_around_them
SELECT b.vehicle AS a FROM ((SELECT vehicle FROM lrb) AS a) AS b INTO out
--- for_update
SELECT vehicle AS a FROM lrb FOR UPDATE INTO out
--- select_as_struct
SELECT AS STRUCT vehicle AS a FROM lrb INTO out
--- union_by_name
SELECT vehicle AS a FROM lrb UNION ALL BY NAME SELECT vehicle AS a FROM lrb INTO out
--- match_recognize
SELECT * FROM lrb MATCH_RECOGNIZE (PARTITION BY vehicle ORDER BY creationTS MEASURES A.speed AS s PATTERN (A B) DEFINE A AS speed > 1) INTO out
--- cumulate
SELECT COUNT(*) AS a FROM TABLE(CUMULATE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES)) GROUP BY window_start INTO out
--- emit_changes
SELECT vehicle AS a FROM lrb EMIT CHANGES INTO out
--- emit_on_window_close
SELECT vehicle AS a FROM lrb INTO out EMIT ON WINDOW CLOSE
--- into_before_from
SELECT vehicle AS a INTO out FROM lrb
--- into_twice
SELECT vehicle AS a FROM lrb INTO out INTO out

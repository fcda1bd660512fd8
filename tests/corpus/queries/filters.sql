--- pushed_to_the_sources
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE speed > 100 AND highway = 3 INTO out
--- pushed_although_not_selected
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE direction AND position BETWEEN 10 AND 20 INTO out
--- only_a_part_is_pushed
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE speed > 100 AND sqrt(position) > 3 INTO out
--- or_and_not
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE NOT (speed <= 100 OR highway IN (1, 2, 3)) INTO out
--- is_null_and_not_null
CREATE SINK out(s VARCHAR NOT NULL, must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT s, must FROM types WHERE s IS NOT NULL AND i32 IS NULL INTO out
--- is_not_null_is_known_to_the_sink
CREATE SINK out(s VARCHAR NOT NULL) TYPE PRINT ON edge;
SELECT s FROM types WHERE s IS NOT NULL INTO out
--- every_type_that_agents_compare
CREATE SINK out(must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must FROM types WHERE b AND i8 > 1 AND i64 <= 5000000000 AND u8 < 200 AND u64 <> 0 AND f32 >= 1.5 AND f64 < 1e10 AND d10 = 1.25 AND s > 'm' AND c = 'abc' AND day >= '2026-01-01' AND ts < '2026-02-01 00:00:00' INTO out
--- columns_of_one_type_compared
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE vehicle > highway AND position <> vehicle INTO out
--- not_pushed_because_agents_cannot
CREATE SINK out(must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must FROM types WHERE i64 > 1.5e0 AND s LIKE 'a%' AND upper(s) = 'X' AND bin = X'00' AND i32 + 1 > 2 AND b IS TRUE INTO out
--- through_a_sub_select
CREATE SINK out(v INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT v FROM (SELECT vehicle AS v, speed AS sp, highway FROM lrb) WHERE sp > 50 AND v < 7 INTO out
--- through_a_union
CREATE SINK out(k VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT k FROM (SELECT customer AS k, ts FROM orders UNION ALL SELECT k, ts FROM mixed) WHERE k = 'x' INTO out
--- through_a_group_on_its_key
CREATE SINK out(highway INT16, n INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT highway, n FROM (SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) WHERE highway = 3 AND n > 10 INTO out
--- not_below_a_limit
CREATE SINK out(vehicle INT32, speed FLOAT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle, speed FROM (SELECT vehicle, speed FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) ORDER BY speed DESC LIMIT 3) WHERE speed > 10 INTO out
--- topics_filter_in_spark
CREATE SINK out(id INT64 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT id FROM orders WHERE amount > 100 AND status = 'open' INTO out
--- a_source_of_files_and_topics
CREATE SINK out(v INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT v FROM mixed WHERE k = 'a' INTO out
--- two_scans_share_what_both_ask_for
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE speed > 10 AND highway = 1 UNION ALL SELECT vehicle FROM lrb WHERE speed > 10 AND highway = 2 INTO out
--- two_scans_of_which_one_asks_for_all
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE speed > 10 UNION ALL SELECT vehicle FROM lrb INTO out
--- like_with_escape
CREATE SINK out(s VARCHAR) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT s FROM types WHERE s LIKE '10!%' ESCAPE '!' AND s NOT ILIKE 'x_' INTO out
--- rows_compared
CREATE SINK out(must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must FROM types WHERE (i8, s) IN ((1, 'a'), (2, 'b')) AND (i16, i32) = (3, 4) INTO out
--- null_safe
CREATE SINK out(must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must FROM types WHERE i32 <=> 5 AND s IS DISTINCT FROM c INTO out
--- always_false
CREATE SINK out(vehicle INT32) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT vehicle FROM lrb WHERE 1 = 2 INTO out
--- text_with_quotes_and_unicode
CREATE SINK out(must INT32 NOT NULL) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT);
SELECT must FROM types WHERE s = 'it''s \\ "😀" \n' INTO out

--- named
CREATE QUERY fast_cars AS SELECT vehicle, speed FROM lrb WHERE speed > 100 INTO out
--- if_not_exists
CREATE QUERY IF NOT EXISTS "Fast-Cars" AS SELECT * FROM lrb INTO out
--- options
CREATE QUERY q AS SELECT * FROM lrb INTO out WITH (mode = 'exactly_once', deadline = 2 MINUTES, start = earliest, idle_timeout = '30 seconds', delivery = at_least_once, lateness = 5s)
--- options_of_a_bare_query
SELECT * FROM lrb INTO out WITH (mode = realtime)
--- options_without_a_sink
SELECT a FROM s WITH (deadline = 500ms)
--- options_as_set
SELECT a FROM s INTO out SET('realtime' AS MODE)
--- sink_with_dashes
SELECT a FROM s INTO results-2026
--- insert_into
INSERT INTO out SELECT a, b FROM s WHERE a IS NOT NULL
--- common_table_expression
WITH fast AS (SELECT * FROM lrb WHERE speed > 100) SELECT count(*) AS n FROM fast WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- union_all
SELECT a FROM s UNION ALL SELECT a FROM t INTO out
--- casts_and_literals
SELECT FLOAT32(40) AS a, CAST(x AS UINT64) AS b, y::DECIMAL(10,2) AS c, TRY_CAST(z AS INT8) AS d, DATE '2026-01-31' AS e, TIMESTAMP '2026-01-31 12:00:00' AS f, 'it''s' AS g, 'tab\there' AS h, "quoted name" AS i, `another` AS j, 5L AS k, 1.5D AS l, X'CAFE' AS m, CAST(n AS STRUCT<p: INT, q: ARRAY<TEXT>>) AS n FROM s
--- joins_and_semi_joins
SELECT a.x, b.y FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTES WHERE a.k IN (SELECT k FROM c) INTO out
--- not_like_is_not_hidden
SELECT a FROM s WHERE a NOT LIKE 'x%' AND b NOT IN (1, 2) AND NOT c
--- comments_do_not_reach_the_tree
SELECT /* sqlglot.meta start=9 */ count(a) /* sqlglot.anonymous */ FROM s -- the end
--- several_statements_keep_their_places
SELECT ';' AS a FROM s INTO x; /* ; */ -- ;
  SELECT `;` FROM t
  INTO y;;
--- explain
EXPLAIN SELECT a FROM s INTO out
--- explain_dot
EXPLAIN (FORMAT DOT) CREATE QUERY q AS SELECT a FROM s INTO out WITH (mode = realtime)
--- stop_and_drop
STOP QUERY q; STOP QUERY q SOFT WITHIN 30 SEC; STOP QUERY "Q" HARD; DROP QUERY q; DROP QUERY IF EXISTS q SOFT WITHIN '2 minutes'; DROP QUERY q HARD
--- refused_misspelt_from
SELECT a FORM s
--- refused_misspelt_select
SELCT a FROM s
--- refused_unfinished_expression
SELECT (a + FROM s
--- refused_extra_words
SELECT a FROM s WHERE a > 1 2
--- refused_number_with_letters
SELECT 5km AS distance FROM s
--- refused_unknown_type_in_cast
SELECT CAST(a AS INTEGR) FROM s
--- refused_type_of_other_systems_in_cast
SELECT a::INT4 FROM s
--- refused_unclosed_string
SELECT 'abc FROM s
--- refused_unclosed_name
SELECT `abc FROM s
--- refused_unclosed_comment
SELECT a /* FROM s
--- refused_unclosed_bracket
SELECT f(a FROM s
--- refused_closing_bracket
SELECT a) FROM s
--- refused_hint
SELECT /*+ BROADCAST(t) */ a FROM s
--- refused_unknown_option
SELECT a FROM s INTO out WITH (mod = 'realtime')
--- refused_unknown_mode
SELECT a FROM s INTO out WITH (mode = fast)
--- refused_deadline_without_unit
SELECT a FROM s INTO out WITH (deadline = 30)
--- refused_start_that_is_no_time
SELECT a FROM s INTO out WITH (start = 'yesterday')
--- refused_option_twice
SELECT a FROM s INTO out WITH (mode = realtime, MODE = exactly_once)
--- refused_options_before_as
CREATE QUERY q WITH (mode = realtime) AS SELECT a FROM s INTO out
--- refused_into_after_options
SELECT a FROM s WITH (mode = realtime) INTO out
--- refused_into_in_a_sub_select
SELECT a FROM (SELECT a FROM s INTO t) INTO out
--- refused_two_sinks
INSERT INTO a SELECT x FROM s INTO b
--- refused_insert_with_columns
INSERT INTO out (a, b) SELECT a, b FROM s
--- refused_insert_of_values
INSERT INTO out VALUES (1, 2)
--- refused_query_without_select
CREATE QUERY q AS INTO out
--- refused_nothing_after_into
SELECT a FROM s INTO
--- refused_update
UPDATE s SET a = 1
--- refused_alter
ALTER SINK out SET('x' AS SINK.FILE_PATH)
--- refused_begin
BEGIN; SELECT a FROM s INTO out; COMMIT
--- refused_start_query
START QUERY q
--- refused_explain_analyze
EXPLAIN ANALYZE SELECT a FROM s INTO out
--- refused_within_of_a_hard_stop
STOP QUERY q HARD WITHIN 5 SEC
--- refused_cascade
DROP LOGICAL SOURCE s CASCADE
--- refused_nothing
  -- nothing but a comment
;
--- refused_several_at_once
SELECT a FORM s;
CREATE SNIK x (a INT) TYPE PRINT;
SELECT a FROM s INTO out;
DROP QUREY q
--- refused_create_table
CREATE TABLE t (a INT)
--- refused_materialized_view
CREATE MATERIALIZED VIEW v AS SELECT a FROM s
--- refused_unclosed_cast
SELECT CAST(a AS INT FROM s
--- refused_unclosed_extract
SELECT EXTRACT(year FROM a FROM s
--- refused_comma_before_from
SELECT a, FROM s
--- refused_no_columns
SELECT FROM s
--- refused_between_without_and
SELECT a FROM s WHERE a BETWEEN 1 2
--- refused_empty_in
SELECT a FROM s WHERE a IN ()
--- refused_empty_group_by
SELECT a FROM s GROUP BY
--- refused_empty_where
SELECT a FROM s WHERE INTO out
--- refused_star_after_a_source
SELECT a FROM s * INTO out
--- refused_on_without_a_condition
SELECT a FROM s JOIN t ON INTO out
--- refused_empty_using
SELECT a FROM s JOIN t USING () INTO out
--- refused_empty_argument
SELECT f(a, , b) FROM s
--- refused_argument_after_the_last_comma
SELECT f(a, ) FROM s
--- refused_parameter
SELECT a FROM s WHERE a = :limit
--- refused_question_mark
SELECT a FROM s WHERE a = ?
--- refused_string_as_source
SELECT a FROM 's'
--- refused_case_without_end
SELECT CASE WHEN a THEN 1 FROM s
--- refused_dash_in_a_source
SELECT a FROM edge-1 INTO out
--- refused_cast_without_as
SELECT CAST(a, INT) FROM s
--- refused_cast_function_with_two_arguments
SELECT FLOAT32(1, 2) FROM s
--- refused_values
VALUES (1, 2)
--- refused_deadline_of_a_month
SELECT a FROM s INTO out WITH (deadline = 30 days)
--- columns_of_a_common_table_expression
WITH a (x, y) AS (SELECT 1, 2) SELECT x FROM a AS b (z, w) INTO out
--- explicit_cross_join
SELECT a FROM s CROSS JOIN t INTO out
--- join_without_a_condition_stays_without
SELECT a FROM s JOIN t INTO out
--- refused_cast_without_a_type
SELECT a:: FROM s
--- refused_cast_at_the_end
SELECT a::
--- refused_unclosed_alias
SELECT a FROM s AS t (x

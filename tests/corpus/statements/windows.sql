--- tumbling
SELECT start, end, k, count(*) AS n FROM s GROUP BY k WINDOW TUMBLING(ts, SIZE 5 SEC) INTO out
--- tumbling_before_group_by
SELECT k, count(*) AS n FROM s WINDOW TUMBLING(ts, SIZE 5 SEC) GROUP BY k INTO out
--- tumbling_with_everything
SELECT count(*) FROM s WINDOW TUMBLING(s.ts, SIZE 1 HOUR, OFFSET 15 MINUTES, LATENESS 10 SEC)
--- sliding
SELECT count(*) FROM s WINDOW SLIDING(ts, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
--- sliding_with_equals
SELECT count(*) FROM s WINDOW SLIDING(ts, size = 1m, advance = 1s, lateness = 250ms)
--- session
SELECT k, count(*) FROM s GROUP BY k WINDOW SESSION(ts, GAP 30 SEC)
--- processing_time
SELECT count(*) FROM s WINDOW TUMBLING(SIZE 1 DAY)
--- integer_event_time
SELECT count(*) FROM s WINDOW TUMBLING(ts UNIT MILLISECONDS, SIZE 5 SEC)
--- column_named_like_a_setting
SELECT count(*) FROM s WINDOW TUMBLING(size, SIZE 5 SEC)
--- durations_in_words_and_strings
SELECT count(*) FROM s WINDOW SLIDING(ts, SIZE '90 minutes', ADVANCE INTERVAL '1' MINUTE); SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 1.5 HOURS); SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 2d); SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE INTERVAL '10 seconds')
--- window_in_a_sub_select
SELECT k, max(n) AS m FROM (SELECT k, start, count(*) AS n FROM s GROUP BY k WINDOW TUMBLING(ts, SIZE 1 MIN)) GROUP BY k WINDOW TUMBLING(start, SIZE 1 HOUR) INTO out
--- group_by_window_function
SELECT window.start, window.end, k, count(*) AS n FROM s GROUP BY k, window(ts, '5 minutes')
--- group_by_window_function_only
SELECT window, count(*) AS n FROM s GROUP BY window(ts, '10 minutes', '5 minutes', '1 minute')
--- group_by_window_alias
SELECT window(ts, '5 minutes') AS w, w.start, count(*) AS n FROM s GROUP BY w
--- group_by_window_ordinal
SELECT session_window(ts, '5 seconds').start AS a, session_window(ts, '5 seconds') FROM s GROUP BY 2
--- group_by_session_window
SELECT session_window.start, count(*) FROM s GROUP BY session_window(ts, '30 seconds'), k
--- tumble_table_function
SELECT window_start, window_end, sum(price) FROM TUMBLE(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES) GROUP BY window_start, window_end
--- tumble_in_table
SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES, INTERVAL '2' MINUTES)) AS b
--- tumble_with_named_arguments
SELECT * FROM TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(bidtime), SIZE => INTERVAL '10' MINUTES)
--- hop_table_function
SELECT window_start, count(*) FROM HOP(bids, bidtime, INTERVAL '1 MINUTE', INTERVAL '10 MINUTES') AS b JOIN items ON b.item = items.id GROUP BY window_start
--- session_table_function_over_a_sub_select
SELECT * FROM SESSION((SELECT user, ts FROM clicks WHERE user IS NOT NULL), ts, '30 seconds') AS c
--- named_window_of_the_standard
SELECT sum(a) OVER w FROM s WINDOW w AS (PARTITION BY k)
--- refused_unknown_window
SELECT count(*) FROM s WINDOW TUMBELING(ts, SIZE 5 SEC)
--- refused_tumbling_without_size
SELECT count(*) FROM s WINDOW TUMBLING(ts)
--- refused_sliding_without_advance
SELECT count(*) FROM s WINDOW SLIDING(ts, SIZE 5 SEC)
--- refused_advance_above_size
SELECT count(*) FROM s WINDOW SLIDING(ts, SIZE 5 SEC, ADVANCE BY 10 SEC)
--- refused_advance_of_tumbling
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 5 SEC, ADVANCE BY 1 SEC)
--- refused_size_of_session
SELECT count(*) FROM s WINDOW SESSION(ts, SIZE 5 SEC)
--- refused_month
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 1 MONTH)
--- refused_zero
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 0 SEC)
--- refused_size_without_unit
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 5)
--- refused_unknown_setting
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZ 5 SEC)
--- refused_unknown_time_unit
SELECT count(*) FROM s WINDOW TUMBLING(ts UNIT FORTNIGHTS, SIZE 5 SEC)
--- refused_expression_as_time
SELECT count(*) FROM s WINDOW TUMBLING(a + b, SIZE 5 SEC)
--- refused_two_windows
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 5 SEC) WINDOW TUMBLING(ts, SIZE 10 SEC)
--- refused_two_window_functions
SELECT count(*) FROM s GROUP BY window(ts, '5 seconds'), window(ts, '10 seconds')
--- refused_window_function_that_groups_nothing
SELECT window(ts, '5 seconds'), a FROM s
--- refused_offset_beyond_the_step
SELECT count(*) FROM s WINDOW TUMBLING(ts, SIZE 5 SEC, OFFSET 5 SEC)

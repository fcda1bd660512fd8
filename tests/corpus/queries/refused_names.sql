--- unknown_column
SELECT speeed FROM lrb INTO out
--- unknown_columns_together
SELECT speeed, vehicel FROM lrb WHERE highwy = 3 GROUP BY lan WINDOW TUMBLING(creationTs2, SIZE 5 SEC) INTO out
--- unknown_source
SELECT a FROM lbr INTO out
--- unknown_source_and_sink_together
SELECT a FROM lbr INTO ouut
--- unknown_sink
SELECT vehicle FROM lrb INTO ouut
--- no_sink
SELECT vehicle FROM lrb
--- nothing_feeds_the_source
SELECT a FROM empty INTO out
--- unknown_function
SELECT uper(customer) AS a FROM orders INTO out
--- unknown_relation
SELECT x.id FROM orders o INTO out
--- unknown_column_of_a_relation
SELECT o.idd FROM orders o INTO out
--- unknown_field
SELECT place.citi AS c FROM types INTO out
--- field_of_what_is_no_struct
SELECT s.x AS c FROM types INTO out
--- ambiguous_column
SELECT ts FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR INTO out
--- alias_twice
SELECT a.id FROM orders a JOIN payments a ON 1 = 1 INTO out
--- start_without_a_window
SELECT start, vehicle FROM lrb INTO out
--- not_grouped
SELECT highway, vehicle, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- not_grouped_in_having
SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING speed > 3 INTO out
--- group_by_a_place_that_is_not_there
SELECT highway FROM lrb GROUP BY 3 WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out
--- number_of_column_aliases
SELECT a FROM (SELECT vehicle, speed FROM lrb) AS x(a) INTO out
--- name_that_is_no_name
SELECT a FROM "lrb 2" INTO out
--- name_that_is_no_name_of_a_sink
SELECT vehicle FROM lrb INTO "out 2"
--- unknown_column_in_except
SELECT * EXCEPT (sped) FROM lrb INTO out
--- unknown_column_in_using
SELECT id FROM orders JOIN payments USING (id) INTO out
--- with_query_does_not_see_later_ones
WITH a AS (SELECT x FROM b), b AS (SELECT vehicle AS x FROM lrb) SELECT x FROM a INTO out
--- name_of_another_alphabet
SELECT a FROM "Über" INTO out
--- not_grouped_is_told_once
SELECT vehicle AS a FROM lrb HAVING vehicle > 1 INTO out

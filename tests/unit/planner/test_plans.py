"""What a plan consists of: fragments, edges, inputs, watermarks, and what it was made against."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.explain import explain_text
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.spark import SPARK_CONF
from tests.unit.planner.kit import CATALOG, CORPUS, MemoryView, plan

COUNT = "SELECT highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out"


def catalog_with(sink: str) -> MemoryView:
    return MemoryView(CATALOG).apply(f"CREATE SINK out{sink}")


def test_each_node_local_source_has_a_fragment_an_edge_and_a_watermark_of_its_own() -> None:
    made = plan(COUNT, catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge"))
    kinds = [catalog.FragmentKind.Name(fragment.kind) for fragment in made.fragments]
    assert kinds == ["FRAGMENT_KIND_SOURCE", "FRAGMENT_KIND_SOURCE", "FRAGMENT_KIND_COMPUTE", "FRAGMENT_KIND_SINK"]
    compute = made.fragments[2]
    assert list(compute.input_edges) == [1, 2]
    assert [(entry.edge, entry.event_time, entry.lateness_us) for entry in compute.compute.inputs] == [
        (1, "creationTS", 0),
        (2, "creationTS", 0),
    ]
    assert [(e.from_fragment, e.to_fragment, e.leader_fragment, e.durability) for e in made.edges] == [
        (1, 3, 1, "WAL"),
        (2, 3, 2, "WAL"),
        (3, 4, 4, "WAL"),
    ]


def test_edges_carry_only_the_columns_that_are_read() -> None:
    made = plan(COUNT, catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge"))
    assert [field.name for field in made.edges[0].schema.fields] == ["creationTS", "highway"]
    assert list(made.fragments[0].source.columns) == ["creationTS", "highway"]
    assert len(made.fragments[0].source.schema.fields) == 7


def test_topics_are_read_by_the_compute_fragment_itself() -> None:
    made = plan("SELECT id FROM orders INTO out", catalog_with("(id INT64) TYPE PRINT ON edge"))
    assert [fragment.kind for fragment in made.fragments] == [
        catalog.FRAGMENT_KIND_COMPUTE,
        catalog.FRAGMENT_KIND_SINK,
    ]
    (entry,) = made.fragments[0].compute.inputs
    assert entry.topic.physical_source == "orders_kafka"
    assert entry.topic.options["topic"] == "orders"
    assert [field.name for field in entry.schema.fields] == ["ts", "id", "customer", "amount", "status"]
    assert made.fragments[0].compute.start == "", "each source says where it is read from"


def test_a_query_that_says_where_it_begins_says_so_for_all_its_topics() -> None:
    made = plan("SELECT id FROM orders INTO out WITH (start = 'latest')", catalog_with("(id INT64) TYPE PRINT ON edge"))
    assert made.fragments[0].compute.start == "latest"


def test_source_of_files_and_topics_filters_where_each_is_read() -> None:
    made = plan("SELECT v FROM mixed WHERE k = 'a' INTO out", catalog_with("(v INT32) TYPE PRINT ON edge"))
    assert made.fragments[0].source.filter == "k = 'a'"
    sql = made.fragments[1].compute.spark_sql
    assert sql.count("WHERE k = 'a'") == 1
    assert [entry.WhichOneof("origin") for entry in made.fragments[1].compute.inputs] == ["edge", "topic"]
    assert not made.bounded


def test_query_over_bounded_sources_ends() -> None:
    made = plan("SELECT symbol FROM ticks INTO out", catalog_with("(symbol VARCHAR) TYPE PRINT ON edge"))
    assert made.bounded
    assert not plan(COUNT, catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge")).bounded


def test_uses_name_everything_that_the_plan_rests_on() -> None:
    made = plan(COUNT, catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge"))
    assert [(use.kind, use.uid, use.name) for use in made.uses] == [
        ("agent", "agent-edge", "edge"),
        ("agent", "agent-spark-2", "spark-2"),
        ("logical_source", "logical-lrb", "lrb"),
        ("physical_source", "physical-lrb_file", "lrb_file"),
        ("physical_source", "physical-lrb_tcp", "lrb_tcp"),
        ("sink", "sink-out", "out"),
    ]


def test_lateness_and_idle_timeout_come_from_window_query_or_settings_in_that_order() -> None:
    view = catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge")
    settings = PlannerSettings(default_lateness_us=7, default_idle_timeout_us=9)

    def of(query: str) -> tuple[int, int]:
        compute = plan(query, view, settings).fragments[2].compute
        return compute.inputs[0].lateness_us, compute.idle_timeout_us

    assert of(COUNT) == (7, 9)
    assert of(COUNT + " WITH (lateness = 2s, idle_timeout = 3s)") == (2_000_000, 3_000_000)
    stated = COUNT.replace("SIZE 1 MIN", "SIZE 1 MIN, LATENESS 5 SEC")
    assert of(stated) == (5_000_000, 9)


def test_two_windows_over_one_source_share_its_reading_with_the_greater_lateness() -> None:
    made = plan(
        "SELECT a.start, a.n FROM (SELECT start, COUNT(*) AS n FROM lrb "
        "WINDOW TUMBLING(creationTS, SIZE 1 MIN, LATENESS 5 SEC)) a "
        "JOIN (SELECT start, MAX(speed) AS m FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN, LATENESS 9 SEC)) b "
        "ON a.start = b.start INTO out",
        catalog_with("(start TIMESTAMP, n INT64) TYPE PRINT ON edge"),
    )
    assert [f.kind for f in made.fragments].count(catalog.FRAGMENT_KIND_SOURCE) == 2
    assert [entry.lateness_us for entry in made.fragments[2].compute.inputs] == [9_000_000, 9_000_000]


def test_the_same_part_of_a_query_is_written_once() -> None:
    made = plan(
        "WITH c AS (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway "
        "WINDOW TUMBLING(creationTS, SIZE 1 MIN)) "
        "SELECT a.highway, b.n FROM c a JOIN c b ON a.start = b.start AND a.highway = b.highway INTO out",
        catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge"),
    )
    sql = made.fragments[2].compute.spark_sql
    assert sql.count("window(") == 1
    assert sql.count("count(1)") == 1


def test_uses_of_one_query_that_read_other_columns_are_still_one_step() -> None:
    made = plan(
        "WITH c AS (SELECT start, highway, COUNT(*) AS n, MAX(speed) AS top, MIN(lane) AS unread FROM lrb "
        "GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) "
        "SELECT start, highway, n FROM c UNION ALL SELECT start, highway, CAST(top AS INT64) FROM c INTO out",
        catalog_with("(start TIMESTAMP, highway INT16, n INT64) TYPE PRINT ON edge"),
    )
    sql = made.fragments[2].compute.spark_sql
    assert sql.count("GROUP BY") == 1
    assert "count(1) AS n, max(speed) AS top\n" in sql
    assert "lane" not in sql


def test_parts_that_differ_are_not_made_the_same() -> None:
    made = plan(
        "WITH c AS (SELECT start, highway, COUNT(*) AS n, MAX(speed) AS top FROM lrb "
        "GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN)) "
        "SELECT start, highway, n FROM c WHERE highway = 1 UNION ALL "
        "SELECT start, highway, CAST(top AS INT64) FROM c WHERE highway = 2 INTO out",
        catalog_with("(start TIMESTAMP, highway INT16, n INT64) TYPE PRINT ON edge"),
    )
    sql = made.fragments[2].compute.spark_sql
    assert sql.count("GROUP BY") == 2
    assert sql.count("count(1)") == sql.count("max(speed)") == 1


def test_session_settings_are_part_of_the_plan() -> None:
    made = plan(COUNT, catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge"))
    assert dict(made.fragments[2].compute.spark_conf) == SPARK_CONF
    assert SPARK_CONF["spark.sql.ansi.enabled"] == "true"


def test_update_keys_say_which_row_is_replaced() -> None:
    query = "SELECT highway AS road, lane, COUNT(*) AS n FROM lrb GROUP BY highway, lane INTO out"
    made = plan(query, catalog_with("(lane UINT8, road INT16, n INT64) TYPE PRINT ON edge"))
    compute = made.fragments[2].compute
    assert compute.output_mode == "update"
    assert list(compute.update_keys) == ["lane", "road"]
    assert list(made.fragments[3].sink.update_keys) == ["lane", "road"]


def test_column_for_a_computed_time_gets_a_name_that_the_source_does_not_have() -> None:
    view = catalog_with("(n INT64) TYPE PRINT ON edge").apply(
        "CREATE LOGICAL SOURCE odd(event_time INT64, _Event_Time INT64);"
        "CREATE PHYSICAL SOURCE FOR odd TYPE TOPIC SET('odd' AS `SOURCE`.TOPIC)"
    )
    made = plan("SELECT COUNT(*) AS n FROM odd WINDOW TUMBLING(event_time UNIT SECONDS, SIZE 1 MIN) INTO out", view)
    (entry,) = made.fragments[0].compute.inputs
    assert (entry.event_time, entry.event_time_expression) == ("__event_time", "timestamp_seconds(event_time)")


def test_catalog_is_asked_only_for_what_the_statement_names() -> None:
    view = catalog_with("(highway INT16, n INT64) TYPE PRINT ON edge")
    plan(COUNT, view)
    assert view.asked == {"logical_source": 1, "physical_sources": 1, "sink": 1, "agents": 1, "links": 1}


@pytest.mark.slow
def test_plans_do_not_depend_on_the_process_that_makes_them() -> None:
    program = (
        "import hashlib; from tests.unit.planner.kit import cases, corpus_files, outcome\n"
        "text = ''.join(outcome(c) for p in corpus_files() if p.stem in ('joins', 'filters') for c in cases(p))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    root = Path(__file__).parents[3]
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_plan_of_the_first_format_is_still_read() -> None:
    recorded = (CORPUS / "plan_v1.textproto").read_text()
    read = text_format.Parse(recorded, catalog.QueryPlan())
    assert read.format_version == 1
    again = catalog.QueryPlan.FromString(read.SerializeToString())
    assert again == read
    text = explain_text(read, catalog.EXPLAIN_FORMAT_TEXT)
    assert "1 source on edge, 1 slot; writes edge 1" in text
    assert "filter: speed > 10" in text


def test_plan_as_a_graph() -> None:
    made = plan(
        "SELECT id FROM orders INTO out WITH (delivery = at_least_once)",
        catalog_with("(id INT64) TYPE TOPIC SET('x\"y' AS `SINK`.TOPIC)".replace('"', "-")),
    )
    assert explain_text(made, catalog.EXPLAIN_FORMAT_DOT) == "\n".join(
        [
            "digraph plan {",
            "  rankdir=LR;",
            '  node [shape=box, fontname="monospace"];',
            "  subgraph cluster_0 {",
            '    label="spark-2";',
            '    f1 [label="1 compute\\n1 inputs, append"];',
            "  }",
            '  t_input_1 [shape=cylinder, label="KAFKA source orders_kafka"];',
            "  t_input_1 -> f1;",
            '  target [shape=cylinder, label="TOPIC sink out"];',
            "  f1 -> target;",
            "}",
        ]
    )

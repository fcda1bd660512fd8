"""Where fragments go, and what is said where they can go nowhere."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY, PLACEMENT_ERROR
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.explain import explain_text
from headgate_coordinator.sql.place import replace_fragment
from headgate_coordinator.sql.planner import plan_query
from tests.unit.planner.kit import MemoryView, parse_query, plan

SOURCES = """
CREATE LOGICAL SOURCE s(ts TIMESTAMP, k VARCHAR);
CREATE PHYSICAL SOURCE s_file FOR s TYPE FILE ON a SET('x.csv' AS `SOURCE`.FILE_PATH, 'CSV' AS PARSER.`TYPE`);
CREATE LOGICAL SOURCE t(ts TIMESTAMP, k VARCHAR);
CREATE PHYSICAL SOURCE t_topic FOR t TYPE TOPIC SET('t' AS `SOURCE`.TOPIC);
CREATE SINK here(k VARCHAR) TYPE FILE ON a SET('out.csv' AS `SINK`.FILE_PATH);
CREATE SINK there(k VARCHAR) TYPE FILE ON c SET('out.csv' AS `SINK`.FILE_PATH);
CREATE SINK topic(k VARCHAR) TYPE TOPIC SET('o' AS `SINK`.TOPIC);
"""
FROM_FILE = "SELECT k FROM s INTO {}"
FROM_TOPIC = "SELECT k FROM t INTO {}"


def cluster(*agents: str) -> MemoryView:
    return MemoryView("; ".join(f"CREATE AGENT {agent}" for agent in agents)).apply(SOURCES)


def agents_of(made: catalog.QueryPlan) -> list[str]:
    return [fragment.agent for fragment in made.fragments]


def refused(view: MemoryView, query: str) -> StatementError:
    with pytest.raises(StatementError) as raised:
        plan(query, view)
    return raised.value


def test_node_local_fragments_go_where_their_source_or_sink_is() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 20", "c AT 'c:1' SLOTS 5")
    made = plan(FROM_FILE.format("there"), view)
    assert agents_of(made) == ["a", "b", "c"]
    assert [fragment.node_local for fragment in made.fragments] == [True, False, True]


def test_compute_goes_to_the_agent_with_the_most_free_slots() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 20", "c AT 'c:1' SLOTS 19")
    view.agent("b").slots_used = 5
    assert agents_of(plan(FROM_FILE.format("here"), view))[1] == "c"


def test_of_equal_agents_that_in_the_freer_zone_then_the_first_by_name() -> None:
    view = cluster(
        "a AT 'a:1' SLOTS 2 ZONE 'x'",
        "b AT 'b:1' SLOTS 9 ZONE 'x'",
        "c AT 'c:1' SLOTS 9 ZONE 'y'",
        "d AT 'd:1' SLOTS 3 ZONE 'y'",
    )
    assert agents_of(plan(FROM_TOPIC.format("topic"), view))[0] == "c"
    view.agent("d").slots = 0
    view.agent("a").slots = 0
    assert agents_of(plan(FROM_TOPIC.format("topic"), view))[0] == "b"


def test_order_of_the_catalog_does_not_matter() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 9", "c AT 'c:1' SLOTS 9")
    first = plan(FROM_FILE.format("there"), view)
    view.agent_list.reverse()
    assert plan(FROM_FILE.format("there"), view) == first


def test_compute_needs_an_engine_and_the_role() -> None:
    view = cluster("a AT 'a:1' SLOTS 99 WITHOUT ENGINE", "b AT 'b:1' SLOTS 99 ROLES (LOG)", "c AT 'c:1' SLOTS 2")
    assert agents_of(plan(FROM_FILE.format("here"), view)) == ["a", "c", "a"]


def test_whoever_leads_an_edge_has_the_role_log_and_is_named_if_not() -> None:
    view = cluster("a AT 'a:1' SLOTS 9 ROLES (FRAGMENTS)", "b AT 'b:1' SLOTS 9", "c AT 'c:1' SLOTS 9")
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == PLACEMENT_ERROR
    assert "agent a, where the source s_file is, cannot lead its edge without the role LOG" in error.message
    assert "start it with --roles log,fragments" in error.message


def test_a_sink_that_can_be_anywhere_is_where_its_edge_can_be_led() -> None:
    view = cluster("a AT 'a:1' SLOTS 9 ROLES (FRAGMENTS)", "b AT 'b:1' SLOTS 2 WITHOUT ENGINE")
    assert agents_of(plan(FROM_TOPIC.format("topic"), view)) == ["a", "b"], "the compute fragment leads nothing"
    view.agent("b").roles.remove(catalog.AGENT_ROLE_LOG)
    error = refused(view, FROM_TOPIC.format("topic"))
    assert error.reason == PLACEMENT_ERROR
    assert "a cannot lead its edge without the role LOG" in error.message
    assert "b cannot lead its edge without the role LOG" in error.message


def test_unreachable_agents_get_nothing() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 20")
    view.agent("b").state = catalog.AGENT_STATE_UNREACHABLE
    assert agents_of(plan(FROM_FILE.format("here"), view)) == ["a", "a", "a"]
    view.agent("a").state = catalog.AGENT_STATE_UNREACHABLE
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == PLACEMENT_ERROR
    assert "agent a, where the source s_file is, does not answer" in error.message


def test_sink_that_can_be_anywhere_stays_beside_the_compute_fragment() -> None:
    view = cluster("a AT 'a:1' SLOTS 2", "b AT 'b:1' SLOTS 5")
    made = plan(FROM_TOPIC.format("topic"), view)
    assert agents_of(made) == ["b", "b"]
    assert made.edges[0].durability == "OBJECT"
    assert not made.fragments[1].node_local
    view.agent("b").slots_used = 4
    view.agent("a").slots_used = 1
    assert sorted(agents_of(plan(FROM_TOPIC.format("topic"), view))) == ["a", "b"]


def test_slots_of_several_fragments_on_one_agent_add_up() -> None:
    view = cluster("a AT 'a:1' SLOTS 2")
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == INSUFFICIENT_CAPACITY
    assert "a has 0 of 2 slots free, 1 needed" in error.message
    view.agent("a").slots = 3
    assert agents_of(plan(FROM_FILE.format("here"), view)) == ["a", "a", "a"]


def test_full_agent_of_a_source_is_named_with_what_it_lacks() -> None:
    view = cluster("a AT 'a:1' SLOTS 4", "b AT 'b:1' SLOTS 4")
    view.agent("a").slots_used = 4
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == INSUFFICIENT_CAPACITY
    assert "agent a, where the source s_file is, has 0 of 4 slots free, 1 needed" in error.message


def test_groups_are_not_mixed() -> None:
    view = cluster("a AT 'a:1' SLOTS 9 GROUP 'plant'", "b AT 'b:1' SLOTS 99", "c AT 'c:1' SLOTS 9")
    assert agents_of(plan(FROM_FILE.format("here"), view)) == ["a", "a", "a"]
    error = refused(view, FROM_FILE.format("there"))
    assert error.reason == PLACEMENT_ERROR
    assert "is of group default, not plant" in error.message


def test_data_flows_along_links_only() -> None:
    view = cluster(
        "a AT 'a:1' SLOTS 9 WITHOUT ENGINE", "b AT 'b:1' SLOTS 99", "c AT 'c:1' SLOTS 9", "d AT 'd:1' SLOTS 5"
    )
    view.apply("CREATE NETWORK LINK FROM a TO d; CREATE NETWORK LINK FROM d TO c; CREATE NETWORK LINK FROM b TO c")
    made = plan(FROM_FILE.format("there"), view)
    assert agents_of(made) == ["a", "d", "c"]
    assert [use.name for use in made.uses if use.kind == "link"] == ["a -> d", "d -> c"]
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == PLACEMENT_ERROR
    assert "b has no link from a" in error.message
    assert "d has no link to a" in error.message


def test_full_agent_that_no_link_leads_to_is_not_told_to_be_full() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 8", "c AT 'c:1' SLOTS 9 WITHOUT ENGINE")
    view.apply("CREATE NETWORK LINK FROM a TO c")
    view.agent("a").has_engine = False
    view.agent("b").slots_used = 8
    error = refused(view, FROM_FILE.format("there"))
    assert error.reason == PLACEMENT_ERROR
    assert "b has no link from a" in error.message
    assert "slots" not in error.message


def test_full_agent_of_a_sink_that_nothing_reaches_is_no_matter_of_capacity() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 9", "c AT 'c:1' SLOTS 8")
    view.apply("CREATE NETWORK LINK FROM b TO a")
    view.agent("c").slots_used = 8
    error = refused(view, FROM_FILE.format("there"))
    assert error.reason == PLACEMENT_ERROR
    assert "has no link" in error.message
    view.apply("CREATE NETWORK LINK FROM a TO c")
    assert refused(view, FROM_FILE.format("there")).reason == INSUFFICIENT_CAPACITY


def test_full_cluster_still_explains() -> None:
    view = cluster("a AT 'a:1' SLOTS 3", "b AT 'b:1' SLOTS 2")
    view.agent("a").slots_used = 2
    view.agent("b").slots_used = 2
    query = parse_query(FROM_FILE.format("here"))
    assert refused(view, FROM_FILE.format("here")).reason == INSUFFICIENT_CAPACITY
    made = plan_query(query, view, for_people=True)
    assert agents_of(made) == ["a", "b", "a"]
    assert made.unplaced == "agent a, where the sink here is, has 0 of 3 slots free, 1 needed"
    text = explain_text(made, catalog.EXPLAIN_FORMAT_TEXT)
    assert f"cannot be placed now: {made.unplaced}" in text
    view.agent("a").slots_used = 0
    assert plan_query(query, view, for_people=True).unplaced == ""


def test_explaining_does_not_invent_links() -> None:
    view = cluster("a AT 'a:1' SLOTS 1", "b AT 'b:1' SLOTS 9", "c AT 'c:1' SLOTS 9")
    view.apply("CREATE NETWORK LINK FROM b TO a")
    with pytest.raises(StatementError) as raised:
        plan_query(parse_query(FROM_FILE.format("there")), view, for_people=True)
    assert raised.value.reason == PLACEMENT_ERROR


def test_no_agent_with_an_engine() -> None:
    view = cluster("a AT 'a:1' SLOTS 9 WITHOUT ENGINE")
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == PLACEMENT_ERROR
    assert error.message.endswith("no agent can run the compute fragment: a has no engine")


def test_many_agents_that_lack_something_are_not_all_told() -> None:
    view = cluster(*(f"n{i} AT 'n{i}:1' SLOTS 0" for i in range(60)), "a AT 'a:1' SLOTS 9 WITHOUT ENGINE")
    error = refused(view, FROM_FILE.format("here"))
    assert error.reason == INSUFFICIENT_CAPACITY
    assert error.message.endswith("and 41 more")


def test_lost_compute_fragment_moves_to_the_best_other_agent() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 99", "c AT 'c:1' SLOTS 50")
    made = plan(FROM_FILE.format("here"), view)
    assert made.fragments[1].agent == "b"
    view.agent("b").state = catalog.AGENT_STATE_UNREACHABLE
    chosen = replace_fragment(made, 2, view.agents(), view.links(), lambda agent: agent.name == "b")
    assert chosen.name == "c"


def test_moved_fragment_keeps_to_links_and_groups() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 99", "c AT 'c:1' SLOTS 50", "d AT 'd:1' SLOTS 9 GROUP 'x'")
    view.apply("CREATE NETWORK LINK FROM a TO b; CREATE NETWORK LINK FROM b TO a; CREATE NETWORK LINK FROM a TO c")
    made = plan(FROM_FILE.format("here"), view)
    view.agent("a").slots_used = 9
    with pytest.raises(HeadgateError) as raised:
        replace_fragment(made, 2, view.agents(), view.links(), lambda agent: agent.name == made.fragments[1].agent)
    assert raised.value.reason == INSUFFICIENT_CAPACITY
    assert "c has no link to a" in raised.value.message
    assert "d is of group x, not default" in raised.value.message


def test_node_local_fragment_never_moves() -> None:
    view = cluster("a AT 'a:1' SLOTS 9", "b AT 'b:1' SLOTS 99")
    made = plan(FROM_FILE.format("here"), view)
    with pytest.raises(HeadgateError) as raised:
        replace_fragment(made, 1, view.agents(), view.links(), lambda agent: False)
    assert raised.value.reason == PLACEMENT_ERROR

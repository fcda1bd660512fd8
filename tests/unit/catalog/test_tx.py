"""Recording changes: what happened to a resource in one transaction is one change, from first to last."""

from __future__ import annotations

from unittest.mock import sentinel

from headgate.catalog.v1 import resources_pb2 as pb
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.tx import Tx


def tx() -> Tx:
    return Tx(sentinel.connection, 0, 1, RandomIds())


def sink(revision: int) -> pb.Sink:
    return pb.Sink(name="s", uid="u", revision=revision)


def test_changes_keep_their_order() -> None:
    made = tx()
    for uid in ("b", "a", "c"):
        made.record("SINK", uid, uid, None, sink(1))
    made.record("SINK", "a", "a", sink(1), sink(2))
    assert [change.uid for change in made.changes] == ["b", "a", "c"]


def test_two_changes_of_one_resource_become_one_from_first_to_last() -> None:
    made = tx()
    made.record("SINK", "s", "u", sink(1), sink(2))
    made.record("SINK", "s", "u", sink(2), sink(3))
    (change,) = made.changes
    assert (change.before, change.after) == (sink(1), sink(3))


def test_what_came_and_went_in_one_transaction_is_no_change() -> None:
    made = tx()
    made.record("SINK", "s", "u", None, sink(1))
    made.record("SINK", "s", "u", sink(1), None)
    assert made.changes == []


def test_a_name_dropped_and_made_again_is_two_changes() -> None:
    made = tx()
    made.record("SINK", "s", "u1", sink(1), None)
    made.record("SINK", "s", "u2", None, sink(2))
    assert [(change.uid, change.after is None) for change in made.changes] == [("u1", True), ("u2", False)]


def test_the_same_uid_of_two_kinds_is_two_resources() -> None:
    made = tx()
    made.record("SINK", "s", "u", None, sink(1))
    made.record("AGENT", "s", "u", None, pb.Agent())
    assert len(made.changes) == 2

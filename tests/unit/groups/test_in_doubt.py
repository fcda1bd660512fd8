"""While it is in doubt whether the agent's session lives, it keeps its groups and their members wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.unit.kafka.kit import GROUPS, Cluster, running_cluster
from tests.unit.kafka.test_every_version import create, join
from tests.unit.kafka.test_in_doubt import doubt, waits
from tests.unit.kafka.wire import Wire, parse

NONE = ErrorCode.none
Values = dict[str, Any]

OFFSETS = [{"partition_index": 0, "committed_offset": 2, "committed_metadata": "x"}]


def of_member(group: str, member: str, generation: int) -> Values:
    return {"group_id": group, "generation_id": generation, "member_id": member}


def joining(group: str, member: str, _: int) -> Values:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }


def leaving(group: str, member: str, _: int) -> Values:
    return {"group_id": group, "members": [{"member_id": member}]}


def committing(group: str, member: str, generation: int) -> Values:
    told = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": generation}
    return told | {"topics": [{"name": "orders", "partitions": OFFSETS}]}


def fetching(group: str, *_: object) -> Values:
    return {"groups": [{"group_id": group, "topics": [{"name": "orders", "partition_indexes": [0]}]}]}


# What members and operators of groups ask, with its version.
ASKED: dict[tuple[int, int], Callable[[str, str, int], Values]] = {
    (11, 9): joining,
    (14, 5): of_member,
    (12, 4): of_member,
    (13, 5): leaving,
    (8, 9): committing,
    (9, 9): fetching,
    (15, 5): lambda group, *_: {"groups": [group]},
    (42, 2): lambda group, *_: {"groups_names": [group]},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    limits = replace(GROUPS, initial_rebalance_delay=0.0, look_interval=0.05)
    with running_cluster(tmp_path, groups=limits) as running:
        yield running


def errors(answer: Any) -> set[ErrorCode]:
    """Every error that is anywhere in an answer."""
    found = {answer.error_code} if hasattr(answer, "error_code") else set()
    for name in ("topics", "partitions", "groups", "results", "members"):
        for one in getattr(answer, name, ()):
            found |= errors(one)
    return found


def asked_in_doubt(cluster: Cluster, stack: ExitStack, seconds: float) -> dict[tuple[int, int], Wire]:
    """Connections, on each of which one request was made of a group of its own with a member, and waits."""
    (agent,) = cluster.agents.values()
    wires = {kind: stack.enter_context(Wire(agent.address)) for kind in ASKED}
    create(wires[11, 9], "orders")
    members = {kind: join(wire, f"group-{kind[0]}") for kind, wire in wires.items()}
    doubt(cluster, seconds)
    for kind, wire in wires.items():
        wire.send(*kind, ASKED[kind](f"group-{kind[0]}", *members[kind]))
    assert [kind for kind, wire in wires.items() if not waits(wire, 0.1)] == []
    return wires


@pytest.mark.slow
def test_what_is_asked_of_groups_waits_and_is_answered_when_it_is_certain_again(cluster: Cluster) -> None:
    (agent,) = cluster.agents.values()
    with ExitStack() as stack:
        wires = asked_in_doubt(cluster, stack, seconds=60.0)
        before = dict(agent.groups._led)
        cluster.transport.cut.clear()
        said = {kind: errors(parse(*kind, wire.receive())[1]) for kind, wire in wires.items()}
    assert said == {kind: {NONE} for kind in ASKED} | {(42, 2): {ErrorCode.non_empty_group}}
    assert agent.groups._led == before and len(before) == len(ASKED)


@pytest.mark.slow
def test_what_is_asked_of_groups_is_refused_if_it_is_never_certain_again(cluster: Cluster) -> None:
    with ExitStack() as stack:
        wires = asked_in_doubt(cluster, stack, seconds=2.0)
        said = {kind: errors(parse(*kind, wire.receive())[1]) for kind, wire in wires.items()}
    assert said == {kind: {ErrorCode.coordinator_not_available} for kind in ASKED}


@pytest.mark.slow
def test_a_member_whose_heartbeat_waits_is_not_let_go_for_its_silence(cluster: Cluster) -> None:
    (agent,) = cluster.agents.values()
    with Wire(agent.address) as wire:
        member, generation = join(wire, "group", session_timeout=500)
        create(wire, "orders")
        wire.ask(12, 4, of_member("group", member, generation))
        doubt(cluster)
        wire.send(12, 4, of_member("group", member, generation))
        assert waits(wire, 1.5)
        cluster.transport.cut.clear()
        assert parse(12, 4, wire.receive())[1].error_code is NONE

"""Which failures of calls to agents pass, how long they are waited for, and what the end of a run is then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_engine.errors import BAD_RECORD, EDGE_DATA_LOST, EDGE_FAILED, STALE_EPOCH
from headgate_engine.executor import calls
from headgate_engine.executor.calls import Access, EdgeClient, told_by
from headgate_engine.executor.wire import EdgeError
from headgate_engine.fragments.errors import failure_of
from tests.integration.engine.edges import Edges, serving_edges

# Bounds a test that fails; nothing here takes so long.
LONG = 60.0


@pytest.fixture
def edges() -> Iterator[Edges]:
    calls._moved.clear()
    with serving_edges() as made:
        made.create("t", 1)
        yield made


def access_to(edges: Edges, patience: float = LONG) -> Access:
    return Access(edges.address, "t", 1, "f", 1, patience=patience)


@pytest.mark.parametrize("reason", ["NOT_LEADER", "UNKNOWN_PARTITION", "LEASE_CONFLICT", "SHUTTING_DOWN"])
def test_an_agent_that_does_not_lead_again_yet_is_waited_for(reason: str, edges: Edges) -> None:
    edges.refusing = (reason, "")
    asked = threading.Event()

    def lead_again() -> None:
        asked.wait(LONG)
        edges.refusing = None

    helper = threading.Thread(target=lead_again)
    helper.start()
    client = EdgeClient(access_to(edges), given_up=lambda: bool(asked.set()))
    assert client.open_writer(["t"]) == -1
    helper.join()


@pytest.mark.parametrize("reason", ["STALE_EPOCH", "OFFSET_OUT_OF_RANGE", "STAGE_NOT_FOUND", "DATA_DAMAGED"])
def test_what_does_not_pass_is_told_at_once(reason: str, edges: Edges) -> None:
    edges.refusing = (reason, "")
    with pytest.raises(EdgeError, match=reason):
        EdgeClient(access_to(edges)).get()
    assert edges.calls == 1


def test_the_leader_that_is_named_is_asked_and_the_first_one_again_when_that_is_gone(edges: Edges) -> None:
    with serving_edges() as other:
        other.create("t", 3)
        edges.refusing = ("NOT_LEADER", other.address)
        assert len(EdgeClient(access_to(edges)).get()) == 3
        asked = edges.calls
        # Another client of the same process, such as the next task, begins there.
        assert len(EdgeClient(access_to(edges)).get()) == 3
        assert edges.calls == asked
    edges.refusing = None
    assert len(EdgeClient(access_to(edges)).get()) == 1


def test_an_epoch_of_the_leader_is_not_that_of_the_run(edges: Edges) -> None:
    with serving_edges() as other:
        other.create("t", 3)
        edges.refusing = ("STALE_EPOCH", other.address)
        assert len(EdgeClient(access_to(edges)).get()) == 3


def test_patience_ends_and_the_run_may_be_started_again(edges: Edges) -> None:
    edges.refusing = ("UNKNOWN_PARTITION", "")
    with pytest.raises(EdgeError) as raised:
        EdgeClient(access_to(edges, patience=0.0)).get()
    failure = failure_of(raised.value)
    assert (failure.reason, failure.transient) == (EDGE_FAILED, True)


def test_a_run_that_is_told_to_stop_waits_for_nobody(edges: Edges, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    edges.refusing = ("NOT_LEADER", "")
    threading.Timer(0.3, stop.touch).start()
    with pytest.raises(EdgeError, match="NOT_LEADER"):
        EdgeClient(access_to(edges), given_up=told_by(str(stop))).get()
    # An agent that does not answer at all.
    edges.refusing = None
    stop.unlink()
    release = threading.Event()
    edges.before_commit = lambda batch: release.wait(LONG)
    threading.Timer(0.3, stop.touch).start()
    with pytest.raises(EdgeError, match="given up"):
        EdgeClient(access_to(edges), given_up=told_by(str(stop))).commit(0, [])
    release.set()


@pytest.mark.parametrize(
    ("reason", "told", "transient"),
    [
        ("NOT_LEADER", EDGE_FAILED, True),
        ("UNKNOWN_PARTITION", EDGE_FAILED, True),
        ("UNREACHABLE", EDGE_FAILED, True),
        ("DEADLINE_EXCEEDED", EDGE_FAILED, True),
        ("LEASE_CONFLICT", EDGE_FAILED, True),
        ("STAGE_NOT_FOUND", EDGE_FAILED, True),
        ("INVALID_ARGUMENT", EDGE_FAILED, False),
        ("RECORD_TOO_LARGE", EDGE_FAILED, False),
        ("STALE_EPOCH", STALE_EPOCH, False),
        ("OFFSET_OUT_OF_RANGE", EDGE_DATA_LOST, False),
        ("DATA_DAMAGED", EDGE_DATA_LOST, False),
        ("BAD_RECORD", BAD_RECORD, False),
    ],
)
def test_whether_another_start_may_help_is_told(reason: str, told: object, transient: bool) -> None:
    # As it is raised here, and as it comes back from a task through the JVM.
    raised = (EdgeError(reason, "so it is"), RuntimeError(f"...\nx.wire.EdgeError: {reason}: so it is\n\tat java"))
    for error in raised:
        failure = failure_of(error)
        assert (failure.reason, failure.transient) == (told, transient)

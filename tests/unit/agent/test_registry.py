"""What an agent does with commands: fragment_service.proto, to the letter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_agent.errors import JOURNAL_UNAVAILABLE, OBJECT_STORE_UNAVAILABLE
from headgate_agent.fragments import registry as registry_module
from headgate_agent.fragments.journal import MemoryJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import SimulatedRunner
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from tests.integration.cluster.runners import Script

REGISTERED = catalog.FRAGMENT_STATE_REGISTERED
STARTED = catalog.FRAGMENT_STATE_STARTED
RUNNING = catalog.FRAGMENT_STATE_RUNNING
STOPPED = catalog.FRAGMENT_STATE_STOPPED
TERMINATED = catalog.FRAGMENT_STATE_TERMINATED
FAILED = catalog.FRAGMENT_STATE_FAILED


class Agent:
    """Shorter calls."""

    def __init__(self, journal: MemoryJournal | None = None, runner: Any = None, incarnation: str = "p1") -> None:
        self.journal = journal or MemoryJournal()
        self.script = runner or Script()
        self.registry = FragmentRegistry(
            incarnation=incarnation, runner=self.script, journal=self.journal, clock=SystemClock()
        )

    async def open(self) -> Agent:
        await self.registry.open()
        return self

    async def register(self, uid: str = "f", epoch: int = 1, term: int = 1, to: str = "", **plan: Any) -> None:
        await self.registry.register(
            cluster.RegisterFragmentRequest(
                command=command(term, to),
                fragment=ref(uid, epoch),
                query="q",
                query_uid="query-1",
                plan=catalog.FragmentPlan(ordinal=1, slots=2, **plan),
            )
        )

    async def start(self, uid: str = "f", epoch: int = 1, term: int = 1) -> None:
        await self.registry.start(cluster.StartFragmentRequest(command=command(term), fragment=ref(uid, epoch)))

    async def stop(self, uid: str = "f", epoch: int = 1, term: int = 1, soft: bool = False) -> None:
        mode = catalog.STOP_MODE_SOFT if soft else catalog.STOP_MODE_HARD
        await self.registry.stop(
            cluster.StopFragmentRequest(command=command(term), fragment=ref(uid, epoch), mode=mode)
        )

    async def unregister(self, uid: str = "f", epoch: int = 1, term: int = 1, *, for_good: bool = False) -> None:
        await self.registry.unregister(
            cluster.UnregisterFragmentRequest(command=command(term), fragment=ref(uid, epoch), for_good=for_good)
        )

    async def status(self, since: int = 0, term: int = 1, to: str = "") -> cluster.GetStatusResponse:
        request = cluster.GetStatusRequest(command=command(term, to), since=since)
        return await self.registry.status(request, catalog.AgentResources())

    async def states(self) -> dict[str, tuple[int, int]]:
        return {one.fragment.uid: (one.fragment.epoch, one.state) for one in (await self.status()).fragments}

    async def until(self, uid: str, state: int) -> None:
        for _ in range(500):
            found = (await self.states()).get(uid)
            if found is not None and found[1] == state:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"{uid} is {await self.states()}, not {state}")

    async def restart(self, **options: Any) -> Agent:
        """Another process on the same journal."""
        await self.registry.close()
        return await Agent(self.journal, incarnation="p2", **options).open()


def command(term: int, to: str = "") -> cluster.Command:
    return cluster.Command(term=term, incarnation=to)


def ref(uid: str, epoch: int) -> cluster.FragmentRef:
    return cluster.FragmentRef(uid=uid, epoch=epoch)


async def refused(call: Any) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        await call
    return caught.value


async def test_register_start_stop_unregister() -> None:
    agent = await Agent().open()
    await agent.register()
    assert await agent.states() == {"f": (1, REGISTERED)}
    await agent.start()
    await agent.until("f", RUNNING)
    await agent.stop()
    await agent.until("f", STOPPED)
    await agent.unregister()
    assert await agent.states() == {}
    await agent.registry.close()


async def test_every_command_may_come_twice() -> None:
    agent = await Agent().open()
    for _ in range(2):
        await agent.register()
    for _ in range(2):
        await agent.start()
    await agent.until("f", RUNNING)
    await agent.register()
    assert (await agent.states())["f"] == (1, RUNNING), "registering again must not set it back"
    assert len(agent.script.starts) == 1
    for _ in range(2):
        await agent.stop(soft=True)
    await agent.until("f", STOPPED)
    await agent.start()
    assert (await agent.states())["f"] == (1, STOPPED), "what has ended under an epoch is not started again"
    for _ in range(2):
        await agent.unregister()


async def test_a_higher_epoch_replaces_the_former_run_which_is_stopped_first() -> None:
    agent = await Agent().open()
    await agent.register()
    await agent.start()
    await agent.until("f", RUNNING)
    await agent.register(epoch=2)
    assert agent.script.stops == ["f"]
    assert await agent.states() == {"f": (2, REGISTERED)}
    for call in (agent.register(), agent.start(), agent.stop(), agent.unregister()):
        error = await refused(call)
        assert error.reason.name == "STALE_EPOCH" and error.metadata["epoch"] == "2"
    await agent.registry.close()


async def test_a_late_register_cannot_bring_back_what_was_forgotten() -> None:
    agent = await Agent().open()
    await agent.register(epoch=3)
    await agent.unregister(epoch=3)
    for epoch in (1, 3):
        assert (await refused(agent.register(epoch=epoch))).reason.name == "STALE_EPOCH"
    again = await agent.restart()
    assert (await refused(again.register(epoch=3))).reason.name == "STALE_EPOCH"
    await again.register(epoch=4)


async def test_forgetting_what_was_never_known_keeps_it_out_too() -> None:
    agent = await Agent().open()
    await agent.unregister(epoch=1)
    assert (await refused(agent.register(epoch=1))).reason.name == "STALE_EPOCH"


async def test_starting_what_is_not_registered_is_refused() -> None:
    agent = await Agent().open()
    assert (await refused(agent.start())).reason.name == "FRAGMENT_NOT_REGISTERED"
    await agent.register()
    assert (await refused(agent.start(epoch=2))).reason.name == "FRAGMENT_NOT_REGISTERED"


async def test_a_lower_term_is_refused_in_every_command_also_after_a_restart() -> None:
    agent = await Agent().open()
    await agent.register(term=5)
    for call in (agent.register(term=4), agent.start(term=4), agent.stop(term=4), agent.unregister(term=4)):
        assert (await refused(call)).reason.name == "STALE_TERM"
    assert (await refused(agent.status(term=4))).reason.name == "STALE_TERM"
    again = await agent.restart()
    assert (await refused(again.status(term=4))).reason.name == "STALE_TERM"
    assert (await again.status(term=5)).full


class FailingOnce(MemoryJournal):
    """Refuses one append."""

    fails = False

    async def append(self, record: bytes) -> None:
        if self.fails:
            self.fails = False
            raise HeadgateError(JOURNAL_UNAVAILABLE, "the disk is full")
        await super().append(record)


async def test_a_term_that_could_not_be_written_is_written_with_the_next_command() -> None:
    journal = FailingOnce()
    agent = await Agent(journal).open()
    await agent.register(term=1)
    journal.fails = True
    assert (await refused(agent.start(term=2))).reason.name == "JOURNAL_UNAVAILABLE"
    assert (await refused(agent.start(term=1))).reason.name == "STALE_TERM"
    await agent.start(term=2)
    again = await agent.restart()
    assert (await refused(again.status(term=1))).reason.name == "STALE_TERM"


async def test_a_fragment_that_is_forgotten_again_in_a_later_term_stays_forgotten_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "SLACK", 5)
    agent = await Agent().open()
    await agent.unregister("f", term=1)
    await agent.unregister("f", term=2)
    for number in range(20):
        await agent.register(f"g{number}", term=2)
        await agent.unregister(f"g{number}", term=2)
    assert (await refused(agent.register("f", term=2))).reason.name == "STALE_EPOCH"


async def test_a_status_question_alone_is_enough_to_shut_a_former_leader_out() -> None:
    agent = await Agent().open()
    await agent.register(term=1)
    await agent.status(term=2)
    assert (await refused(agent.start(term=1))).reason.name == "STALE_TERM"


async def test_a_command_for_another_process_is_refused() -> None:
    agent = await Agent().open()
    assert (await refused(agent.register(to="p0"))).reason.name == "WRONG_INCARNATION"
    assert (await refused(agent.status(to="p0"))).reason.name == "WRONG_INCARNATION"
    await agent.register(to="p1")
    # A command for another process does not teach a term either.
    await refused(agent.status(to="p0", term=99))
    await agent.start(term=1)
    await agent.registry.close()


async def test_a_restarted_process_goes_on_with_what_it_was_told() -> None:
    agent = await Agent().open()
    for uid in ("registered", "running", "draining", "ended", "forgotten"):
        await agent.register(uid)
    for uid in ("running", "draining", "ended", "forgotten"):
        await agent.start(uid)
        await agent.until(uid, RUNNING)
    await agent.stop("ended")
    await agent.until("ended", STOPPED)
    await agent.unregister("forgotten")
    agent.script.drain.clear()
    await agent.stop("draining", soft=True)
    script = Script()
    script.drain.clear()
    again = await agent.restart(runner=script)
    await again.until("running", RUNNING)
    states = await again.states()
    assert states["registered"] == (1, REGISTERED)
    assert states["ended"] == (1, STOPPED)
    assert "forgotten" not in states
    assert sorted(one.uid for one in script.starts) == ["draining", "running"]
    assert script.drains == ["draining"], "a soft stop is not forgotten by a crash"
    await again.registry.close()


async def test_status_tells_only_what_changed_since_the_last_answer() -> None:
    agent = await Agent().open()
    await agent.register("one")
    await agent.register("two")
    first = await agent.status()
    assert first.full and len(first.fragments) == 2 and first.slots_used == 4
    quiet = await agent.status(first.version)
    assert not quiet.full and not quiet.fragments and quiet.version == first.version
    await agent.start("one")
    await agent.until("one", RUNNING)
    await agent.unregister("two")
    delta = await agent.status(first.version)
    assert not delta.full
    assert [(one.fragment.uid, one.state) for one in delta.fragments] == [("one", RUNNING)]
    assert list(delta.forgotten) == ["two"]
    assert (await agent.status(delta.version + 100)).full, "a version it never had is answered with everything"
    await agent.registry.close()


async def test_what_was_forgotten_and_registered_again_is_not_told_as_forgotten() -> None:
    agent = await Agent().open()
    await agent.register()
    first = await agent.status()
    await agent.unregister()
    await agent.register(epoch=2)
    delta = await agent.status(first.version)
    assert [one.fragment.epoch for one in delta.fragments] == [2] and not delta.forgotten


async def test_a_caller_too_far_behind_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FORGOTTEN", 3)
    agent = await Agent().open()
    await agent.register("keeps")
    first = await agent.status()
    for number in range(5):
        await agent.register(f"f{number}")
        await agent.unregister(f"f{number}")
    answer = await agent.status(first.version)
    assert answer.full and [one.fragment.uid for one in answer.fragments] == ["keeps"]
    assert not (await agent.status(answer.version)).full


async def test_what_fails_says_why_and_whether_it_may_pass() -> None:
    agent = await Agent(runner=Script(fail=[True])).open()
    await agent.register()
    await agent.start()
    await agent.until("f", FAILED)
    (one,) = (await agent.status()).fragments
    assert (one.error.reason, one.error.transient) == ("BROKEN", True)
    again = await agent.restart()
    (one,) = (await again.status()).fragments
    assert (one.state, one.error.reason) == (FAILED, "BROKEN"), "an end survives a restart"
    assert not again.script.starts


async def test_a_refused_plan_is_not_registered() -> None:
    agent = await Agent(runner=Script(refuse=True)).open()
    assert (await refused(agent.register())).reason.name == "PLAN_UNSUPPORTED"
    assert await agent.states() == {} and not [r for r in agent.journal.records if r.startswith(b"R")]


async def test_a_command_is_carried_out_to_its_end_though_its_caller_gave_up() -> None:
    class SlowJournal(MemoryJournal):
        async def append(self, record: bytes) -> None:
            await asyncio.sleep(0.05)
            await super().append(record)

    agent = await Agent(SlowJournal()).open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await agent.register(term=0)
    await asyncio.sleep(0.2)
    assert await agent.states() == {"f": (1, REGISTERED)}


async def test_nothing_is_done_that_could_not_be_written_down() -> None:
    class FullJournal(MemoryJournal):
        full = False

        async def append(self, record: bytes) -> None:
            if self.full:
                raise HeadgateError(registry_module.STALE_TERM, "no space")
            await super().append(record)

    journal = FullJournal()
    agent = await Agent(journal).open()
    await agent.register()
    journal.full = True
    await refused(agent.start())
    assert (await agent.states())["f"] == (1, REGISTERED) and not agent.script.starts
    await refused(agent.register("other"))
    assert "other" not in await agent.states()
    journal.full = False
    await agent.start()
    await agent.until("f", RUNNING)
    await agent.registry.close()


async def test_commands_about_one_fragment_follow_one_another() -> None:
    agent = await Agent().open()
    await agent.register()
    await asyncio.gather(*(agent.start() for _ in range(5)), *(agent.stop(soft=True) for _ in range(3)))
    await agent.until("f", STOPPED)
    assert len(agent.script.starts) <= 1
    await asyncio.gather(agent.unregister(), agent.register(epoch=2), return_exceptions=True)
    assert len(await agent.states()) <= 1
    await agent.registry.close()


async def test_the_journal_is_compacted_and_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "SLACK", 20)
    agent = await Agent().open()
    await agent.register("keeps")
    await agent.start("keeps")
    for number in range(100):
        await asyncio.gather(*(agent.register(f"f{number}-{one}") for one in range(3)))
        await asyncio.gather(*(agent.unregister(f"f{number}-{one}") for one in range(3)))
    assert len(agent.journal.records) < 600 + 20
    again = await agent.restart()
    await again.until("keeps", RUNNING)
    assert list(await again.states()) == ["keeps"]
    assert (await refused(again.register("f99-0"))).reason.name == "STALE_EPOCH"
    await again.registry.close()


async def test_tombstones_of_former_terms_are_let_go_because_their_commands_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry_module, "SLACK", 20)
    agent = await Agent().open()
    for number in range(50):
        await agent.unregister(f"old{number}")
    await agent.status(term=2)
    for number in range(80):
        await agent.register(f"f{number}", term=2)
        await agent.unregister(f"f{number}", term=2)
    assert not any(uid.startswith("old") for uid in agent.registry._tombstones)
    assert (await refused(agent.register("old1", term=1))).reason.name == "STALE_TERM"


async def test_forgetting_everything_stops_everything_for_good() -> None:
    agent = await Agent().open()
    for uid in ("one", "two"):
        await agent.register(uid)
        await agent.start(uid)
    await agent.registry.forget_everything()
    assert agent.registry.fragments == 0 and sorted(agent.script.stops) == ["one", "two"]
    again = await agent.restart()
    assert again.registry.fragments == 0


async def test_a_simulated_generator_ends_by_itself_after_its_rows() -> None:
    agent = await Agent(runner=SimulatedRunner()).open()
    source = catalog.SourceFragment(type=catalog.SOURCE_TYPE_GENERATOR, options={"rows": "10", "rate": "200"})
    await agent.register(source=source)
    await agent.register("endless", source=catalog.SourceFragment(type=catalog.SOURCE_TYPE_GENERATOR))
    await agent.start()
    await agent.start("endless")
    await agent.until("f", TERMINATED)
    assert (await agent.states())["endless"][1] == RUNNING
    await agent.stop("endless", soft=True)
    await agent.until("endless", STOPPED)
    await agent.registry.close()


async def test_a_simulated_agent_does_not_pretend_to_give_rows_to_somebody() -> None:
    agent = await Agent(runner=SimulatedRunner()).open()
    error = await refused(agent.register(sink=catalog.SinkFragment(type=catalog.SINK_TYPE_RESULT)))
    assert error.reason.name == "PLAN_UNSUPPORTED" and "without --no-engine" in error.message
    await agent.register("file", sink=catalog.SinkFragment(type=catalog.SINK_TYPE_FILE))
    await agent.registry.close()


async def test_what_a_fragment_has_kept_is_removed_only_when_it_is_gone_for_good() -> None:
    agent = await Agent().open()
    await agent.register("moved")
    await agent.register("gone")
    await agent.unregister("moved")
    await agent.unregister("gone", for_good=True)
    await agent.unregister("gone", for_good=True)
    assert agent.script.discards == ["gone"]


async def test_what_cannot_be_removed_yet_is_not_forgotten_yet() -> None:
    agent = await Agent().open()
    await agent.register()

    async def fail(assignment: Any) -> None:
        raise HeadgateError(OBJECT_STORE_UNAVAILABLE, "not now")

    agent.script.discard = fail
    assert (await refused(agent.unregister(for_good=True))).reason is OBJECT_STORE_UNAVAILABLE
    assert await agent.states() == {"f": (1, REGISTERED)}


async def test_a_run_that_another_process_began_is_started_as_resumed() -> None:
    agent = await Agent().open()
    await agent.register()
    await agent.start()
    assert [one.resumed for one in agent.script.starts] == [False]
    again = await agent.restart()
    assert [one.resumed for one in again.script.starts] == [True]


async def test_what_a_run_waits_for_is_told_until_it_is_up() -> None:
    script = Script(waits="the engine warms up")
    script.up.clear()
    agent = await Agent(runner=script).open()
    await agent.register()
    before = agent.registry.version
    await agent.start()
    for _ in range(500):
        (told,) = (await agent.status(before)).fragments
        if told.waiting:
            break
        await asyncio.sleep(0.002)
    assert (told.state, told.waiting) == (STARTED, "the engine warms up")
    script.up.set()
    await agent.until("f", RUNNING)
    assert [one.waiting for one in (await agent.status()).fragments] == [""]


async def test_progress_is_reported_once_until_it_changes_or_is_to_be_told_again() -> None:
    agent = await Agent().open()
    await agent.register()
    await agent.start()
    assert agent.registry.reports() == []
    agent.script.progress = catalog.FragmentProgress(rows_in=1)
    first = agent.registry.reports()
    assert [(one.uid, one.epoch, one.progress.rows_in) for one in first] == [("f", 1, 1)]
    assert agent.registry.reports() == first
    agent.registry.told(first)
    assert agent.registry.reports() == []
    agent.registry.tell_again()
    assert agent.registry.reports() == first


async def test_how_a_run_had_done_is_told_with_its_end() -> None:
    agent = await Agent().open()
    await agent.register()
    await agent.start()
    await agent.until("f", RUNNING)
    agent.script.progress = catalog.FragmentProgress(rows_in=7, rows_late=2, rows_in_per_second=3.5, engine="e:1")
    assert not any(one.HasField("progress") for one in (await agent.status()).fragments), "while it runs it is a report"
    await agent.stop(soft=True)
    await agent.until("f", STOPPED)
    (told,) = (await agent.status()).fragments
    assert told.progress == catalog.FragmentProgress(rows_in=7, rows_late=2)

"""Faults: what goes wrong, and how it is made good again.

Faults overlap. So those that concern links or the catalog are not undone one by one: whenever one begins or ends, all
links and stores are set again from the weather and the faults that are active.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headgate_simulation import log_faults
from headgate_simulation.journal_disk import JournalFaults
from headgate_simulation.plan import ANY_AGENT, LEADER, Fault, Weather
from headgate_simulation.store import StoreFaults
from headgate_simulation.streams import stream
from headgate_simulation.transport import Link

if TYPE_CHECKING:
    from headgate_simulation.world import World

# How late agents hear of their sessions while they are deaf, in seconds: too late, whatever a session's time.
DEAF = 6.0


class Faults:
    """The active faults of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._active: dict[str, Fault] = {}
        # Those of them that change how messages travel.
        self._on_links: list[Fault] = []
        # Faults whose target was chosen when they began.
        self._struck: dict[str, Fault] = {}
        # Faults that have seen what they waited for, and those of them after which nobody hears of its session.
        self._ripe: set[str] = set()
        self._deaf: set[str] = set()

    def begin(self, fault: Fault) -> None:
        if fault.target == LEADER:
            fault = self._struck[fault.id] = dataclasses.replace(fault, target=self._world.leading() or "c1")
        self._world.trace.note(fault.target, "fault", fault.id, detail=fault.kind)
        if fault.kind in _EVENTS:
            _EVENTS[fault.kind](self._world, fault)
        else:
            self._active[fault.id] = fault
            self.apply(fault)
            if fault.kind == "runs-break" and fault.target in self._world.runners:
                self._world.runners[fault.target].break_all(bool(fault.get("transient")))

    def end(self, fault: Fault) -> None:
        fault = self._struck.pop(fault.id, fault)
        if fault.kind in _AFTER:
            _AFTER[fault.kind](self._world, fault)
        if self._active.pop(fault.id, None) is not None:
            self._world.trace.note(fault.target, "healed", fault.id, detail=fault.kind)
            self.apply(fault)

    def answered(self, server: str, method: str) -> None:
        """A call was answered, and its answer is about to be sent: faults that wait for it begin behind the answer."""
        for fault in self._active.values():
            if fault.target == server and fault.get("after") == method and fault.id not in self._ripe:
                self._ripe.add(fault.id)
                self._world.loop.call_soon(self.apply)

    def sent(self, method: str) -> None:
        """A call is about to be sent: those that wait for it are over when it is."""
        for fault in self._active.values():
            if fault.kind == "late-next" and fault.target == method and fault.id not in self._ripe:
                self._ripe.add(fault.id)
                self._deaf.add(fault.id)
                self._world.later(0.0, self._set_late_methods)
                self._world.later(_number(fault.get("deaf", 0.0)), partial(self._hears_again, fault.id))

    def _hears_again(self, fault: str) -> None:
        self._deaf.discard(fault)
        self._set_late_methods()

    def heal(self) -> None:
        """Nothing is wrong any more, from now on."""
        self._active.clear()
        self._deaf.clear()
        self._world.calm()
        self.apply()

    def apply(self, changed: Fault | None = None) -> None:
        """Makes everything as the active faults say. `changed` has begun or ended, and is all that has: it is felt on
        the links of its target only."""
        if changed is None or changed.kind in _LINKS:
            self._on_links = [fault for fault in self._active.values() if fault.kind in _LINKS]
            for (sender, receiver), link in self._world.network.links().items():
                if changed is None or changed.target in (sender, receiver):
                    self.set_link(sender, receiver, link)
        self._set_late_methods()
        for name, store in self._world.store_faults.items():
            self._set_store(name, store)
        for name, runner in self._world.run_faults.items():
            breaking = [f for f in self._active.values() if f.kind == "runs-break" and f.target == name]
            runner.breaks = bool(breaking)
            runner.transient = all(bool(f.get("transient")) for f in breaking)
            kinds = {f.kind for f in self._active.values() if f.target == name}
            runner.journal.full = "journal-fails" in kinds
            runner.journal.sync_fails = 0.6 if "journal-breaks" in kinds else 0.0
        if self._world.log is not None:
            log_faults.apply(self._world.log, self._active.values())

    def set_link(self, sender: str, receiver: str, link: Link) -> None:
        weather = self._world.weather
        set_weather(link, weather, between_services="client" not in sender and "client" not in receiver)
        link.blocked = 0
        link.slow = 1.0
        link.held_until = 0.0
        for fault in self._on_links:
            touches = fault.target in (sender, receiver)
            if _blocks(fault, sender, receiver):
                link.blocked += 1
            elif (fault.kind == "slow" and touches) or (fault.kind == "depose" and sender == fault.target):
                link.slow = max(link.slow, _number(fault.get("factor", 1.0)))
            elif fault.kind == "held" and sender == fault.target and self._has_come(fault):
                link.held_until = max(link.held_until, fault.at + fault.lasts)
            elif fault.kind == "lossy" and touches:
                link.loss = max(link.loss, _number(fault.get("loss", 0.0)))
            elif fault.kind == "late-answers" and sender == fault.target:
                link.tail, link.tail_share = _number(fault.get("tail", 0.0)), 0.5
            elif fault.kind == "duplicating" and touches and "client" not in sender:
                link.duplication = max(link.duplication, _number(fault.get("share", 0.0)))

    def _set_late_methods(self) -> None:
        network = self._world.network
        for kind, late in (("late-requests", network.late_requests), ("late-replies", network.late_answers)):
            late.clear()
            for fault in self._active.values():
                waits = fault.kind == "late-next" and kind == "late-requests" and fault.id not in self._ripe
                if fault.kind == kind or waits:
                    late[fault.target] = max(late.get(fault.target, 0.0), _number(fault.get("by", 0.0)))
        if self._deaf:
            network.late_answers["RenewSession"] = DEAF

    def _has_come(self, fault: Fault) -> bool:
        """Whether what the fault waits for has happened, if it waits for anything."""
        return fault.get("after") is None or fault.id in self._ripe

    def _set_store(self, name: str, store: StoreFaults) -> None:
        store.unreachable = 0
        store.fails_before = store.fails_after = store.delay = 0.0
        for fault in self._active.values():
            if fault.target != name:
                continue
            if fault.kind in ("isolate-from-catalog", "depose"):
                store.unreachable += 1
            elif fault.kind == "commit-lost":
                store.fails_after = max(store.fails_after, _number(fault.get("share", 0.0)))
            elif fault.kind == "commit-fails":
                store.fails_before = max(store.fails_before, _number(fault.get("share", 0.0)))
            elif fault.kind == "commit-pauses":
                store.delay = max(store.delay, _number(fault.get("delay", 0.0)))


# Faults that `Faults.set_link` knows.
_LINKS = frozenset(
    {"partition", "one-way", "isolate", "slow", "depose", "held", "lossy", "late-answers", "duplicating"}
)


def _blocks(fault: Fault, sender: str, receiver: str) -> bool:
    if fault.kind == "partition":
        return {sender, receiver} == {fault.target, str(fault.get("other", ""))}
    if fault.kind == "one-way":
        return sender == fault.target and receiver == str(fault.get("other", ""))
    return fault.kind == "isolate" and fault.target in (sender, receiver)


def set_weather(link: Link, weather: Weather, *, between_services: bool) -> None:
    """Requests of clients are never duplicated by the network: gRPC does not, and an unnamed request would be two."""
    link.delay, link.spread = weather.delay, weather.spread
    link.tail, link.tail_share = weather.tail, weather.tail_share
    link.loss = weather.loss
    link.duplication = weather.duplication if between_services else 0.0


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _crash(world: World, fault: Fault) -> None:
    """Of a process; of the machine of an agent too, as often as not. (With a log, power fails by faults of its own.)"""
    world.processes[fault.target].crash()
    machine = fault.target in world.run_faults and world.log is None
    if machine and stream(world.plan.seed, f"crash-power/{fault.id}").random() < 0.5:
        world.journal_loses_power(fault.target)


def _restart(world: World, fault: Fault) -> None:
    if fault.target in world.wanted:
        world.processes[fault.target].start()


def _pause(world: World, fault: Fault) -> None:
    world.processes[fault.target].pause()


def _resume(world: World, fault: Fault) -> None:
    world.processes[fault.target].resume()


def _move_clock(world: World, fault: Fault) -> None:
    world.processes[fault.target].move_wall_clock(_number(fault.get("by", 0.0)))


def _crash_at_commit(world: World, fault: Fault) -> None:
    world.store_faults[fault.target].dies = "after" if fault.get("after") else "before"


def _no_crash_at_commit(world: World, fault: Fault) -> None:
    world.store_faults[fault.target].dies = ""
    _restart(world, fault)


def _no_crash_at_journal(world: World, fault: Fault) -> None:
    if fault.target == ANY_AGENT:
        world.nobody_dies_at_journal()
        return
    journal = world.run_faults[fault.target].journal
    journal.dies = ""
    if fault.get("down"):
        return
    if fault.get("power") and not world.processes[fault.target].up:
        world.journal_loses_power(fault.target)
    _restart(world, fault)


def _crash_at_journal(world: World, fault: Fault) -> None:
    when = fault.get("when") or ("after" if fault.get("after") else "before")
    for name in world.run_faults if fault.target == ANY_AGENT else (fault.target,):
        _set_crash_at_journal(world.run_faults[name].journal, fault, str(when))


def _set_crash_at_journal(journal: JournalFaults, fault: Fault, when: str) -> None:
    journal.dies, journal.power = when, bool(fault.get("power"))
    journal.alone = fault.target == ANY_AGENT
    journal.down, journal.again = _number(fault.get("down", 0.0)), _number(fault.get("again", 0.0))


def _journal_works(world: World, fault: Fault) -> None:
    if fault.get("power"):
        world.power_fails(fault.target)


# Faults that happen at a moment, and what happens when their time is over.
_EVENTS: dict[str, Callable[[World, Fault], None]] = {
    "crash": _crash,
    "pause": _pause,
    "wall-clock": _move_clock,
    "crash-at-commit": _crash_at_commit,
    "crash-at-journal": _crash_at_journal,
    **log_faults.EVENTS,
}
_AFTER: dict[str, Callable[[World, Fault], None]] = {
    "crash": _restart,
    "pause": _resume,
    "crash-at-commit": _no_crash_at_commit,
    "crash-at-journal": _no_crash_at_journal,
    "journal-breaks": _journal_works,
    **log_faults.AFTER,
}

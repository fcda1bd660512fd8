"""What goes wrong with disks and the object store. `faults.py` carries them out beside its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate_simulation.plan import Fault

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld
    from headgate_simulation.world import World

Strike = Callable[["World", Fault], None]

# The object store as the target of a fault that all agents see.
STORE = "store"


def apply(log: LogWorld, active: Iterable[Fault]) -> None:
    """Sets disks and the way to the object store from the faults that are active."""
    faults = list(active)
    for name, trouble in log.troubles.items():
        trouble.fails_before = trouble.fails_after = trouble.delay = 0.0
        for fault in faults:
            if fault.target not in (name, STORE):
                continue
            if fault.kind == "store-fails":
                trouble.fails_before = max(trouble.fails_before, _number(fault, "share"))
            elif fault.kind == "store-lost":
                trouble.fails_after = max(trouble.fails_after, _number(fault, "share"))
            elif fault.kind == "store-slow":
                trouble.delay = max(trouble.delay, _number(fault, "delay"))
    for name, disk in log.wal_faults.items():
        # One that only is full is everybody's; one that does not answer either is one agent's.
        of_disk = [
            fault for fault in faults if fault.kind == "disk-full" and (fault.target == name or not fault.get("broken"))
        ]
        disk.full = bool(of_disk)
        disk.broken = any(bool(fault.get("broken")) for fault in of_disk)


def _number(fault: Fault, name: str) -> float:
    value = fault.get(name, 0.0)
    assert isinstance(value, int | float)
    return float(value)


def _power(world: World, fault: Fault) -> None:
    world.processes[fault.target].crash()
    assert world.log is not None
    world.log.lose_power(fault.target)


def _disk_lost(world: World, fault: Fault) -> None:
    world.processes[fault.target].crash()
    assert world.log is not None
    world.log.lose_disk(fault.target)


def _crash_at_wal(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.wal_faults[fault.target].dies = str(fault.get("when"))


def _crash_at_upload(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.troubles[fault.target].dies = str(fault.get("when"))


def _pause_at_wal(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.wal_faults[fault.target].pauses = True


def _pause_at_upload(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.troubles[fault.target].pauses = True


def _resume(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.wal_faults[fault.target].pauses = world.log.troubles[fault.target].pauses = False
    world.processes[fault.target].resume()


def _restart(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.wal_faults[fault.target].dies = world.log.troubles[fault.target].dies = ""
    process = world.processes[fault.target]
    if fault.get("power") and not process.up:
        world.log.lose_power(fault.target)
    if fault.target in world.wanted:
        process.start()


def _at_next_write(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.next_write = fault


def _at_next_answer(world: World, fault: Fault) -> None:
    assert world.log is not None
    world.log.next_answer = fault


def _no_more(world: World, fault: Fault) -> None:
    """Whoever was struck comes back in its own time."""
    assert world.log is not None
    if world.log.next_write is fault:
        world.log.next_write = None
    if world.log.next_answer is fault:
        world.log.next_answer = None


EVENTS: dict[str, Strike] = {
    "power": _power,
    "disk-lost": _disk_lost,
    "crash-at-wal": _crash_at_wal,
    "crash-at-upload": _crash_at_upload,
}
_OF_ANY_AGENT: dict[str, Strike] = {"pause-at-next-wal": _at_next_write, "crash-at-next-answer": _at_next_answer}
_PAUSES: dict[str, Strike] = {
    "pause-at-wal": _pause_at_wal,
    "pause-at-upload": _pause_at_upload,
}
AFTER: dict[str, Strike] = {
    **dict.fromkeys(EVENTS, _restart),
    **dict.fromkeys(_PAUSES, _resume),
    **dict.fromkeys(_OF_ANY_AGENT, _no_more),
}
EVENTS |= _PAUSES | _OF_ANY_AGENT

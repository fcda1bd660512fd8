"""What must hold once everything that was wrong is right again and time has passed.

Reached means: every query is where it should be and stays there, what runs on the agents is exactly what the catalog
says, slots are exact, and every watcher has seen exactly the history. If that has not come about after `PATIENCE`
seconds of calm, it never will.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.catalog import v1 as catalog
from headgate_simulation import log_quiet
from headgate_simulation.invariants import DESIRED, FRAGMENT_STATES, QUERY_STATES
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.world import World

__all__ = ["DESIRED", "FRAGMENT_STATES", "QUERY_STATES", "reach"]

# Longer than every deadline of the generated queries and every interval of the coordinator.
PATIENCE = 150.0
LOOK_EVERY = 0.5
# How long everything must stay as it should be.
STAYS = 2.0
# How long after all is healed something that was sent before can still come: later than all that comes late.
LATE = 6.5


async def reach(world: World, asking: list[asyncio.Task[None]]) -> None:
    """Heals everything, waits, and checks."""
    world.faults.heal()
    healed = world.loop.time()
    _all_up(world)
    while world.log is not None and not all(task.done() for task in asking):
        # Producers wait for a disk that is with an agent, or that is lost for good.
        await log_quiet.give_up_lost(world.log)
        await asyncio.wait(asking, timeout=LOOK_EVERY)
        _all_up(world)
        world.check()
    await asyncio.gather(*asking, return_exceptions=True)
    # Those that were on their way out when all was healed have left by now, and come back too.
    _all_up(world)
    world.check()
    until = world.loop.time() + PATIENCE
    calm = 0.0
    while calm < STAYS:
        await asyncio.sleep(LOOK_EVERY)
        if world.log is not None:
            # A session of before may have ended only now.
            await log_quiet.give_up_lost(world.log)
            if world.loop.time() >= healed + LATE:
                world.log.hurry()
        world.check()
        waiting = _unsettled(world) or (log_quiet.unsettled(world.log) if world.log is not None else None)
        calm = 0.0 if waiting else calm + LOOK_EVERY
        if waiting and world.loop.time() >= until:
            name, why = waiting
            fail("liveness", f"{PATIENCE:.0f} s after all faults were healed: {why}", (name,))
    world.checker.everything()
    if world.log is not None:
        await log_quiet.read_back(world.log)
    await _watchers(world)


def _all_up(world: World) -> None:
    """Everyone who ever took part takes part again."""
    for name, process in world.processes.items():
        process.resume()
        if not process.up and (name in world.wanted or process.lives):
            world.wanted[name] = None
            process.start()


def _unsettled(world: World) -> tuple[str, str] | None:
    """The first thing that is not as it should be: its name, and what is wrong with it."""
    mirror = world.checker.mirror
    expected: dict[tuple[str, int, str], str] = {}
    placed: dict[tuple[str, int, str], str] = {}
    # Of what has ended by itself nothing is left to do: a process that had to stop everything before it was let in in
    # the place of another does not get it again.
    over: set[tuple[str, int, str]] = set()
    for query in mirror.by_kind["QUERY"].values():
        state, desired = QUERY_STATES[query.state], DESIRED[query.desired_state]
        ended = state in ("STOPPED", "TERMINATED", "FAILED")
        settled = (state == "RUNNING" and desired == "RUNNING") or (ended and desired != "DROPPED")
        if not settled and not (desired == "RUNNING" and world.checker.places.stranded(query.uid)):
            waits = query.waiting.message or "nothing in particular"
            return query.name, f"query {query.name} is {state}, wants {desired}, waits for {waits}"
        for fragment in mirror.fragments(query.uid):
            if fragment.slots_held:
                key = fragment.uid, fragment.epoch, fragment.agent
                placed[key] = query.name
                if fragment.state == catalog.FRAGMENT_STATE_TERMINATED:
                    over.add(key)
                if fragment.state == catalog.FRAGMENT_STATE_RUNNING:
                    expected[key] = query.name
    found = {(run.uid, run.epoch, run.agent) for run in world.truth.all_runs()}
    for key in sorted(expected.keys() - found):
        return expected[key], f"fragment {key} of {expected[key]} is RUNNING in the catalog and nowhere else"
    for key in sorted(found - expected.keys()):
        return key[2], f"agent {key[2]} runs {key}, of which the catalog knows nothing"
    held = set(world.truth.all_held())
    for key in sorted(placed.keys() - held - over):
        return placed[key], f"fragment {key} of {placed[key]} is on its agent in the catalog, and not there"
    for key in sorted(held - placed.keys()):
        return key[2], f"agent {key[2]} has {key}, of which the catalog knows nothing"
    return None


async def _watchers(world: World) -> None:
    until = world.loop.time() + 60.0
    behind = world.watchers
    while behind and world.loop.time() < until:
        behind = [watcher for watcher in world.watchers if watcher.position < world.checker.revision]
        if behind:
            await asyncio.sleep(LOOK_EVERY)
            world.check()
    for watcher in world.watchers:
        if watcher.position != world.checker.revision:
            fail("watches are reliable", f"{watcher.name} is at {watcher.position} of {world.checker.revision}")
        told = {
            (kind.lower(), uid): resource.SerializeToString(deterministic=True)
            for kind, resources in world.checker.mirror.by_kind.items()
            for uid, resource in resources.items()
        }
        seen = watcher.resources
        if seen != told:
            wrong = sorted(key for key in told.keys() | seen.keys() if told.get(key) != seen.get(key))
            fail(
                "watches are complete", f"{watcher.name} does not know the state of {wrong[:5]}", [w[1] for w in wrong]
            )

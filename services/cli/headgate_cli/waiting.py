"""Waits until a resource is in a state, by watching it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

import typer

from headgate.catalog import v1 as catalog
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.kinds import AGENT, QUERY, Kind, short, waiting_text
from headgate_cli.output import say
from headgate_common.errors import HeadgateError

DROPPED = "DROPPED"
_QUERY_ENDED = {"STOPPED", "TERMINATED", "FAILED"}
_STATES = {AGENT.name: catalog.AgentState, QUERY.name: catalog.QueryState}


def check_state(kind: Kind, state: str) -> str:
    """The state in capitals; a usage error where the kind never is in it."""
    wanted = state.upper()
    enum = _STATES.get(kind.name)
    if enum is None:
        raise typer.BadParameter(f"a {kind.title} has no state to wait for; queries and agents have")
    known = [DROPPED, *(short(enum, value) for value in enum.values() if value)]
    if wanted not in known:
        raise typer.BadParameter(f"{kind.title}: never {state!r}; it can be {', '.join(known)}")
    return wanted


class Progress:
    """What is known of one resource; says each change once."""

    def __init__(self, kind: Kind, name: str, wanted: str, *, quiet: bool, also: frozenset[str] = frozenset()) -> None:
        self._kind = kind
        self._name = name
        self._wanted = wanted
        self._fine = {wanted} | also
        self._quiet = quiet
        self._said = ""
        self.state = ""
        self.seen = False

    def update(self, resource: Any | None) -> bool:
        """Takes note of the resource as it is now, None where it is gone. Says whether the wait is over.

        `Failure` where it has ended otherwise and can no longer get there.
        """
        if resource is None:
            return self._gone()
        self.seen = True
        enum = _STATES[self._kind.name]
        self.state = short(enum, resource.state)
        reason = waiting_text(resource) if self._kind is QUERY else resource.state_reason
        self._say(f"{self.state}{f' ({reason})' if reason else ''}")
        if self.state in self._fine:
            return True
        if self._kind is QUERY and self.state in _QUERY_ENDED and self._wanted != DROPPED:
            raise Failure(
                ExitCode.ENDED_OTHERWISE,
                f"{self._kind.title} {self._name} is {self.state}, not {self._wanted}",
                reason or "`headgate describe` tells its story.",
            )
        return False

    def _gone(self) -> bool:
        if self._wanted == DROPPED:
            self._say("gone")
            return True
        if self.seen:
            raise Failure(
                ExitCode.ENDED_OTHERWISE, f"{self._kind.title} {self._name} was dropped before it was {self._wanted}"
            )
        raise Failure(ExitCode.REFUSED, f"there is no {self._kind.title} {self._name}")

    def _say(self, text: str) -> None:
        if text != self._said and not self._quiet:
            say(f"{self._kind.title} {self._name}: {text}")
        self._said = text


async def wait_for(
    connection: Connection,
    kind: Kind,
    name: str,
    state: str,
    timeout: float,
    *,
    quiet: bool = False,
    also: frozenset[str] = frozenset(),
) -> None:
    """Returns once the resource is in the state, or in one of those that are fine, too.

    `Failure` where it ends otherwise, or the time runs out.
    """
    progress = Progress(kind, name.lower(), check_state(kind, state), quiet=quiet, also=also)
    try:
        async with asyncio.timeout(timeout):
            await _follow(connection, kind, name, progress)
    except TimeoutError:
        now = progress.state or "not there"
        raise Failure(
            ExitCode.TIMED_OUT, f"{kind.title} {name} is {now}, not {state.upper()}, after {timeout:g} s"
        ) from None


async def _follow(connection: Connection, kind: Kind, name: str, progress: Progress) -> None:
    request = catalog.WatchRequest(kinds=[cast(Any, kind.number)], name=name)

    def interrupted(error: HeadgateError) -> None:
        say(f"the coordinator went away ({error.reason.name}); trying again")

    async with aclosing(cast(Any, connection.watch_resumed(request, interrupted))) as messages:
        found = None
        async for message in messages:
            match message.WhichOneof("message"):
                case "snapshot":
                    for resource in message.snapshot.resources:
                        found = getattr(resource, kind.name)
                    if message.snapshot.complete and progress.update(found):
                        return
                case "events":
                    for event in message.events.events:
                        current = getattr(event.current, kind.name) if event.HasField("current") else None
                        if progress.update(current):
                            return

"""headgate-agent: wiring only."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headgate_agent.config import AgentConfig
from headgate_agent.data import own, volume_id
from headgate_agent.errors import JOURNAL_UNAVAILABLE, REASONS
from headgate_agent.fragments.journal import FileJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import SimulatedRunner
from headgate_agent.fragments.service import FragmentService
from headgate_agent.load import Load
from headgate_agent.member import Identity, Member
from headgate_common.arguments import Flag
from headgate_common.backoff import Backoff
from headgate_common.errors import HeadgateError
from headgate_common.server import App, Runtime, run_server

FLAGS = (
    Flag("--coordinator", "coordinator", "ADDRESSES", "addresses of the coordinators, separated by commas"),
    Flag("--name", "name", "NAME", "the agent's name"),
    Flag("--data", "data", "FOLDER", "where it keeps what must survive a crash"),
    Flag("--slots", "slots", "NUMBER", "how many slots it offers"),
    Flag("--roles", "roles", "ROLES", "log, fragments"),
    Flag("--engine", "engine", "ENGINE", "what runs compute fragments"),
)


@asynccontextmanager
async def build(config: AgentConfig, runtime: Runtime) -> AsyncIterator[App]:
    with own(config.data):
        journal = FileJournal(config.data / "fragments.journal")
        registry = FragmentRegistry(
            incarnation=runtime.ids.uid("process"), runner=SimulatedRunner(), journal=journal, clock=runtime.clock
        )
        await registry.open()
        name = config.name.lower()
        service = FragmentService(registry, name, Load(runtime.clock, lambda: registry.backlog))
        identity = Identity(
            name=name,
            address=runtime.address,
            incarnation=registry.incarnation,
            slots=config.slots,
            zone=config.zone,
            group=config.group,
            labels=dict(config.labels),
            roles=config.roles,
            volume_id=volume_id(config.data, runtime.ids),
            has_engine=bool(config.engine),
        )
        member = Member(
            identity,
            registry,
            transport=runtime.transport,
            coordinators=config.coordinator,
            clock=runtime.clock,
            source=runtime.source,
            timeout=config.timings.call_timeout,
            backoff=Backoff(initial=config.timings.retry_min, cap=config.timings.retry_max),
        )
        membership = runtime.supervise(member.run(), "membership")
        runtime.supervise(_watch(journal), "journal")

        async def leave() -> None:
            membership.cancel()
            service.left = True
            await member.leave()

        def unready() -> Sequence[str]:
            return (member.trouble,) if member.trouble else ()

        yield App(services=[service], unready=unready, draining=leave)
        await registry.close()
        await journal.close()


async def _watch(journal: FileJournal) -> None:
    """A journal that cannot be trusted ends the process: the next one begins from what is on the disk."""
    await journal.broken.wait()
    raise HeadgateError(JOURNAL_UNAVAILABLE, "the journal failed; the process ends, to begin again from the disk")


def main() -> int:
    return run_server(
        "agent",
        AgentConfig,
        build,
        summary="Runs fragments of queries for a coordinator.",
        flags=FLAGS,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())

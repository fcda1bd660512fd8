"""Agents that serve the log, for commands that read and write records."""

from __future__ import annotations

from typing import Any

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_common.errors import UNREACHABLE, HeadgateError


async def log_agents(connection: Connection) -> list[str]:
    """Addresses of the agents that serve the log."""
    found = await connection.pages("AgentService.ListAgents", catalog.ListAgentsRequest(), "agents")
    addresses = [each.address for each in found if each.present and catalog.AGENT_ROLE_LOG in each.roles]
    if not addresses:
        raise Failure(
            ExitCode.REFUSED,
            "no agent serves the log",
            "Start one with `headgate-agent --roles log`, or `headgate dev`.",
        )
    return addresses


async def on_some_agent(connection: Connection, method: str, request: Any) -> Any:
    """Calls an agent that serves the log; the next one where one does not answer. For what may be done twice."""
    addresses = await log_agents(connection)
    for address in addresses:
        try:
            return await connection.call_at(address, method, request)
        except HeadgateError as error:
            if error.reason is not UNREACHABLE:
                raise
    raise nobody(addresses)


async def agent_that_answers(connection: Connection, topic: str) -> str:
    """The address of an agent that serves the log and answers now, for calls that must not be done twice."""
    addresses = await log_agents(connection)
    for address in addresses:
        try:
            await connection.call_at(
                address, "LogService.ListOffsets", log.ListOffsetsRequest(topic=topic, local_only=True)
            )
        except HeadgateError as error:
            if error.reason is UNREACHABLE:
                continue
        # That it does not lead, or does not know the topic, is an answer too.
        return address
    raise nobody(addresses)


def nobody(addresses: list[str]) -> Failure:
    return Failure(
        ExitCode.UNREACHABLE,
        f"no agent that serves the log answers (tried {', '.join(addresses)})",
        "They tell others that address with --advertise; it must be reachable from here too.",
    )

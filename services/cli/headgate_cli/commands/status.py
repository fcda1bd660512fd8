"""`status` and `version`."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

import typer
from rich.text import Text

from headgate.catalog import v1 as catalog
from headgate_cli import __version__
from headgate_cli.connection import Connection, run
from headgate_cli.kinds import QUERY, of_resource, short, waiting_text
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, print_one, print_table, stdout, styled

_KINDS = (
    catalog.RESOURCE_KIND_AGENT,
    catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
    catalog.RESOURCE_KIND_SINK,
    catalog.RESOURCE_KIND_QUERY,
    catalog.RESOURCE_KIND_FRAGMENT,
    catalog.RESOURCE_KIND_TOPIC,
    catalog.RESOURCE_KIND_PARTITION,
)


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version of this command.

    Example: headgate version -o json
    """
    if output is Output.TABLE:
        stdout().print(f"headgate {__version__} (Python {platform.python_version()}, API headgate.catalog.v1)")
    else:
        print_one({"version": __version__, "python": platform.python_version(), "api": "headgate.catalog.v1"}, output)


def status(context: typer.Context, coordinator: CoordinatorOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show how the cluster is, and what waits and why.

    Example: headgate status --coordinator 127.0.0.1:7400
    """
    options = gather(context, coordinator, output)

    async def read(connection: Connection) -> tuple[str, Any]:
        request = catalog.GetSnapshotRequest(kinds=_KINDS)
        return connection.address, await connection.call("WatchService.GetSnapshot", request)

    address, snapshot = run(options, read)
    summary = summarise(address, snapshot)
    if output is not Output.TABLE:
        print_one(summary, output)
        return
    console = stdout()
    slots = summary["slots"]
    lines = [
        ("coordinator", f"{address} at revision {summary['revision']}"),
        ("agents", _counts(summary["agents"])),
        ("slots", f"{slots['used']} of {slots['total']} in use"),
        ("queries", _counts(summary["queries"])),
        ("fragments", _counts(summary["fragments"])),
        ("sources", f"{summary['logical_sources']} logical, {summary['physical_sources']} physical"),
        ("sinks", str(summary["sinks"])),
        ("topics", _topics(summary)),
    ]
    for title, value in lines:
        console.print(Text(f"{title:<12} ", style="bold"), Text(value), sep="")
    if summary["waiting"]:
        console.print()
        rows = [[item["query"], item["state"], item["reason"]] for item in summary["waiting"]]
        print_table(["QUERY", "STATE", "WAITING"], rows)
    for item in summary["unreachable"]:
        console.print(Text(f"agent {item['agent']} is "), styled("UNREACHABLE"), Text(f": {item['reason']}"), sep="")


def summarise(address: str, snapshot: catalog.GetSnapshotResponse) -> dict[str, Any]:
    """The figures of `status`, all of one revision."""
    by_kind: dict[str, list[Any]] = {}
    for kind, resource in map(of_resource, snapshot.resources):
        by_kind.setdefault(kind.name, []).append(resource)
    agents, queries = by_kind.get("agent", []), by_kind.get(QUERY.name, [])
    topics = [topic for topic in by_kind.get("topic", []) if not topic.internal]
    partitions = by_kind.get("partition", [])
    return {
        "coordinator": address,
        "revision": snapshot.revision,
        "agents": dict(Counter(short(catalog.AgentState, agent.state) for agent in agents)),
        "slots": {"used": sum(agent.slots_used for agent in agents), "total": sum(agent.slots for agent in agents)},
        "queries": dict(Counter(short(catalog.QueryState, query.state) for query in queries)),
        "fragments": dict(Counter(short(catalog.FragmentState, each.state) for each in by_kind.get("fragment", []))),
        "logical_sources": len(by_kind.get("logical_source", [])),
        "physical_sources": len(by_kind.get("physical_source", [])),
        "sinks": len(by_kind.get("sink", [])),
        "topics": len(topics),
        "internal_topics": len(by_kind.get("topic", [])) - len(topics),
        "partitions": len(partitions),
        "partitions_without_leader": [
            {"topic": each.topic, "partition": each.index, "reason": each.waiting}
            for each in partitions
            if not each.leader
        ],
        "waiting": [
            {"query": query.name, "state": short(catalog.QueryState, query.state), "reason": waiting_text(query)}
            for query in queries
            if query.HasField("waiting") or query.HasField("failure")
        ],
        "unreachable": [
            {"agent": agent.name, "reason": agent.state_reason}
            for agent in agents
            if agent.state == catalog.AGENT_STATE_UNREACHABLE
        ],
    }


def _topics(summary: dict[str, Any]) -> str:
    text = f"{summary['topics']} and {summary['internal_topics']} of queries, {summary['partitions']} partitions"
    missing = len(summary["partitions_without_leader"])
    return f"{text}, {missing} without a leader" if missing else text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items())) or "none"

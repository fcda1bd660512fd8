"""What `top` shows: queries and agents at one moment, as text that fits a terminal or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headgate.catalog import v1 as catalog
from headgate_cli.kinds import short, waiting_text
from headgate_cli.output import styled
from headgate_cli.progress import QueryProgress, lag_text, number, of_query, size, watermark_text

_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)
_QUERY_TITLES = ("QUERY", "STATE", "IN/S", "OUT/S", "LAG", "WATERMARK", "LATE", "BAD", "STATE SIZE", "WAITING")
_AGENT_TITLES = ("AGENT", "STATE", "SLOTS", "FRAGMENTS", "CPU", "MEMORY", "BACKLOG", "REASON")
_NUMBERS = {"IN/S", "OUT/S", "LATE", "BAD", "STATE SIZE", "SLOTS", "FRAGMENTS", "CPU", "MEMORY", "BACKLOG"}
# Two titles of tables, the head line, and two blank lines.
_FRAME_LINES = 5
_GAP = 2


@dataclass(frozen=True, slots=True)
class QueryLine:
    query: catalog.Query
    progress: QueryProgress

    @property
    def waiting(self) -> str:
        return waiting_text(self.query) or self.progress.waiting

    def row(self) -> list[str]:
        told = self.progress
        return [
            self.query.name,
            short(catalog.QueryState, self.query.state),
            number(told.rows_in_per_second),
            number(told.rows_out_per_second),
            lag_text(told.lag),
            watermark_text(told.watermark),
            number(told.rows_late),
            number(told.bad_records),
            size(told.state_bytes),
            self.waiting,
        ]


@dataclass(frozen=True, slots=True)
class AgentLine:
    agent: catalog.Agent
    fragments: int

    def row(self) -> list[str]:
        agent, known = self.agent, self.agent.HasField("resources")
        return [
            agent.name,
            short(catalog.AgentState, agent.state),
            f"{agent.slots_used}/{agent.slots}",
            str(self.fragments),
            f"{agent.resources.cpu * 100:.0f}%" if known else "-",
            size(agent.resources.memory_bytes) if known else "-",
            str(agent.resources.backlog) if known else "-",
            agent.state_reason,
        ]


@dataclass(frozen=True, slots=True)
class View:
    """One moment. `queries` has those that have not ended, unless all were asked for."""

    coordinator: str
    time: datetime
    queries: tuple[QueryLine, ...]
    agents: tuple[AgentLine, ...]
    ended: int
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "time": self.time.isoformat(timespec="milliseconds"),
            "coordinator": self.coordinator,
            "queries": [
                {
                    "name": line.query.name,
                    "state": short(catalog.QueryState, line.query.state),
                    **line.progress.as_json(),
                    "waiting": line.waiting,
                }
                for line in self.queries
            ],
            "agents": [
                {
                    "name": line.agent.name,
                    "state": short(catalog.AgentState, line.agent.state),
                    "slots": line.agent.slots,
                    "slots_used": line.agent.slots_used,
                    "fragments": line.fragments,
                    "cpu": line.agent.resources.cpu if line.agent.HasField("resources") else None,
                    "memory_bytes": line.agent.resources.memory_bytes if line.agent.HasField("resources") else None,
                    "backlog": line.agent.resources.backlog if line.agent.HasField("resources") else None,
                    "reason": line.agent.state_reason,
                }
                for line in self.agents
            ],
            "ended_queries": self.ended,
        }


def view(
    coordinator: str,
    time: datetime,
    queries: Sequence[catalog.Query],
    fragments: Sequence[catalog.Fragment],
    agents: Sequence[catalog.Agent],
    *,
    everything: bool = False,
) -> View:
    """Brings together what three lists say. Queries that run come first, then those that wait, then by name."""
    by_query: dict[str, list[catalog.Fragment]] = {}
    for fragment in fragments:
        by_query.setdefault(fragment.query_uid, []).append(fragment)
    placed = Counter(fragment.agent for fragment in fragments if fragment.slots_held)
    shown = [query for query in queries if everything or query.state not in _ENDED]
    return View(
        coordinator,
        time,
        tuple(QueryLine(query, of_query(by_query.get(query.uid, []))) for query in sorted(shown, key=_order)),
        tuple(AgentLine(agent, placed[agent.name]) for agent in agents),
        len(queries) - len(shown),
    )


def _order(query: catalog.Query) -> tuple[bool, bool, str]:
    return query.state in _ENDED, query.state != catalog.QUERY_STATE_RUNNING, query.name


def render(shown: View, width: int | None = None, height: int | None = None) -> Group:
    """The view as text; no wider and no higher than said, and what does not fit is counted."""
    queries, agents = _fit(len(shown.queries), len(shown.agents), height)
    states = Counter(short(catalog.QueryState, line.query.state) for line in shown.queries)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no queries"
    head = Text(
        f"{shown.coordinator}  {shown.time:%H:%M:%S}  {counts}", style="bold", no_wrap=True, overflow="ellipsis"
    )
    if shown.ended:
        head.append(f"  ({shown.ended} ended)", style="dim")
    if shown.trouble:
        head.append(f"  {shown.trouble}", style="bold red")
    return Group(
        head,
        "",
        *_table(_QUERY_TITLES, [line.row() for line in shown.queries], queries, width),
        "",
        *_table(_AGENT_TITLES, [line.row() for line in shown.agents], agents, width),
    )


def _fit(queries: int, agents: int, height: int | None) -> tuple[int, int]:
    """How many of each fit: agents get up to a third of the lines, queries the rest."""
    if height is None:
        return queries, agents
    lines = max(2, height - _FRAME_LINES)
    for_agents = _within(agents, max(1, lines // 3, lines - queries))
    used = for_agents if for_agents == agents else for_agents + 1
    return _within(queries, lines - used), for_agents


def _within(count: int, room: int) -> int:
    """How many of so many have room, where a line says how many have not."""
    return count if count <= room else max(0, room - 1)


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], most: int, width: int | None
) -> Iterator[Table | Text]:
    """The first rows below their titles. The sentences at the end of a line give way where it is too long."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True, overflow="ellipsis")
    shown = rows[:most]
    room = None
    if width is not None:
        cells = [titles, *shown]
        taken = sum(max(len(row[index]) for row in cells) + _GAP for index in range(len(titles) - 1))
        room = max(len(titles[-1]), width - taken - 1)
    for row in shown:
        table.add_row(*(styled(value) for value in row[:-1]), Text(_cut(row[-1], room)))
    yield table
    if most < len(rows):
        yield Text(f"... and {len(rows) - most} more", style="dim")


def _cut(sentence: str, room: int | None) -> str:
    return sentence if room is None or len(sentence) <= room else f"{sentence[: room - 1]}…"

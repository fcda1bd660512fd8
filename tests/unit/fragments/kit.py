"""Edges in memory, plans from statements, and whatever else tests of sources and sinks share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Chunk, EdgeBatch, ErrorRow, Stored
from headgate_agent.fragments.sources.build import Surroundings, build_source
from headgate_agent.fragments.sources.source import Source
from headgate_agent.fragments.sources.tcp import Connector, SocketConnector
from headgate_agent.work import Inline
from headgate_coordinator.catalog.descriptors import validate_sink, validate_source
from headgate_simulation.loop import SimulationLoop

T = TypeVar("T")


class LoopClock:
    """The running loop's time, which is virtual in simulation."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())


def simulated(main: Coroutine[Any, Any, T]) -> T:
    """Runs in virtual time."""
    loop = SimulationLoop(None)  # type: ignore[abstract]
    try:
        made: T = loop.run_until_complete(main)
        return made
    finally:
        loop.close()


@dataclass(slots=True)
class MemoryEdge:
    """An `EdgeWriter` and `EdgeReader` that lives as long as the object does. `max_lag` is in batches."""

    max_lag: int | None = None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    errors: list[ErrorRow] = field(default_factory=list)
    last: Stored | None = None
    trimmed: int = 0
    waiting: str = ""
    appends: int = 0
    # Appends that fail after they have happened, by number.
    uncertain: set[int] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def stored(self) -> Stored | None:
        return self.last

    async def append(
        self,
        batches: Sequence[pa.RecordBatch],
        position: bytes,
        *,
        errors: Sequence[ErrorRow] = (),
        end: bool = False,
    ) -> None:
        assert self.last is None or not self.last.ended, "appended after the end"
        while self.max_lag is not None and len(self.batches) - self.trimmed >= self.max_lag:
            self.waiting = f"the consumer is {self.max_lag} batches behind"
            self._changed.clear()
            await self._changed.wait()
        self.waiting = ""
        self.batches.extend(batches)
        self.errors.extend(errors)
        self.last = Stored(position, end)
        self.appends += 1
        self._changed.set()
        if self.appends in self.uncertain:
            raise ConnectionError("it may have happened")

    async def start(self) -> int:
        return self.trimmed

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        assert offset >= self.trimmed, "read what was trimmed"
        if offset >= len(self.batches) and not (self.last and self.last.ended):
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                return Chunk(())
        found, size = [], 0
        for number in range(offset, len(self.batches)):
            found.append(EdgeBatch(self.batches[number], number + 1))
            size += self.batches[number].nbytes
            if size >= max_bytes:
                break
        at_end = offset + len(found) == len(self.batches)
        return Chunk(found, at_end and self.last is not None and self.last.ended)

    async def trim(self, offset: int) -> None:
        self.trimmed = max(self.trimmed, offset)
        self._changed.set()

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows()]


def schema_of(columns: str) -> catalog.Schema:
    """`a INT32 NOT NULL, b VARCHAR` as a schema. A type with a comma in it is written without a space after it."""
    schema = catalog.Schema()
    for part in columns.split(", "):
        name, _, type_ = part.strip().partition(" ")
        not_null = type_.endswith(" NOT NULL")
        schema.fields.add(name=name, type=type_.removesuffix(" NOT NULL").strip(), not_null=not_null)
    return schema


def source_fragment(
    type_: catalog.SourceType.ValueType,
    options: Mapping[str, str],
    columns: str,
    parser: Mapping[str, str] | None = None,
) -> catalog.SourceFragment:
    """A fragment as the planner makes it: options checked and completed by the coordinator's own descriptors."""
    schema = schema_of(columns)
    valid = validate_source(type_, options, parser or {}, schema)
    return catalog.SourceFragment(
        type=type_,
        options=valid.options,
        parser_options=valid.parser_options,
        schema=schema,
        columns=[field.name for field in schema.fields],
    )


def sink_fragment(type_: catalog.SinkType.ValueType, options: Mapping[str, str], columns: str) -> catalog.SinkFragment:
    schema = schema_of(columns)
    return catalog.SinkFragment(type=type_, options=validate_sink(type_, options, schema), schema=schema)


def around(root: Path | None = None, connector: Connector | None = None, **settings: Any) -> Surroundings:
    # One block a step, so that tests can stop between any two.
    settings.setdefault("step_bytes", 1)
    roots = (root,) if root is not None else ()
    return Surroundings(
        FragmentConfig(file_roots=roots, **settings),
        LoopClock(),
        Inline(),
        random.Random(1),
        connector or SocketConnector(),
    )


def file_source(
    root: Path, columns: str, parser: Mapping[str, str] | None = None, path: str = "in.csv", **more: Any
) -> Source:
    options = {name: value for name, value in more.items() if isinstance(value, str)}
    settings = {name: value for name, value in more.items() if not isinstance(value, str)}
    fragment = source_fragment(catalog.SOURCE_TYPE_FILE, {"file_path": path, **options}, columns, parser)
    return build_source(fragment, around(root, **settings))

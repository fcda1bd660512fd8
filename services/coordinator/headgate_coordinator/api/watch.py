"""WatchService: the stream of changes, and consistent reads of several kinds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import watch_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.catalog import identity
from headgate_coordinator.catalog.links import link_name
from headgate_coordinator.catalog.snapshot import get_snapshot
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import KINDS, LOG_KINDS
from headgate_coordinator.catalog.watch import WatchFilter, WatchHub
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.sql.conditions import compile_columns, compile_where
from headgate_coordinator.sql.names import fold, topic_fault
from headgate_coordinator.sql.parse import parse_where
from headgate_coordinator.sql.statements import WatchStatement


class WatchService:
    descriptor = watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"]

    def __init__(self, store: Store, hub: WatchHub, planning: Planning) -> None:
        self._store = store
        self._hub = hub
        self._planning = planning

    async def watch(self, request: catalog.WatchRequest, call: Call) -> AsyncGenerator[catalog.WatchResponse, None]:
        if request.catalog_uid:
            await self._store.read(lambda tx: identity.require(tx, request.catalog_uid))
        chosen = await self._planning.run(lambda: self._filter(request))
        async with aclosing(self._hub.watch(chosen, request.from_revision)) as responses:
            async for response in responses:
                yield response

    async def get_snapshot(self, request: catalog.GetSnapshotRequest, call: Call) -> catalog.GetSnapshotResponse:
        return await self._store.read(lambda tx: get_snapshot(tx, request))

    def _filter(self, request: catalog.WatchRequest) -> WatchFilter:
        """The filter of a request. The same filter written as a statement and as fields is the same filter."""
        if request.statement:
            return self._filter_of_statement(request)
        kinds = tuple(short(catalog.ResourceKind, kind) for kind in request.kinds)
        if not request.where and not request.columns:
            chosen = _ordered(kinds)
            return WatchFilter(kinds=chosen, name=_name(request.name, chosen), topic=request.name)
        if len(kinds) != 1:
            field = "where" if request.where else "columns"
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"`{field}` is about one kind of resource: give one in `kinds`",
                metadata={"field": field},
            )
        kind = request.kinds[0]
        columns = tuple(request.columns)
        matches, written = None, ""
        if request.where:
            where, source = parse_where(request.where, self._planning.limits)
            matches, written = compile_where(kind, where, source), where.sql()
        project = compile_columns(kind, columns)
        return WatchFilter(kinds, _name(request.name, kinds), request.name, matches, project, (written, columns))

    def _filter_of_statement(self, request: catalog.WatchRequest) -> WatchFilter:
        for field in ("kinds", "name", "where", "columns"):
            if getattr(request, field):
                raise HeadgateError(
                    INVALID_ARGUMENT, f"give either `statement` or `{field}`", metadata={"field": field}
                )
        parsed = self._planning.parse_now(request.statement)
        if len(parsed) != 1 or not isinstance(parsed[0], WatchStatement):
            raise HeadgateError(
                INVALID_ARGUMENT, "`statement` must be one WATCH SELECT ...", metadata={"field": "statement"}
            )
        statement = parsed[0]
        kind = statement.kind
        matches, written = None, ""
        if statement.where is not None:
            matches = compile_where(kind, statement.where, statement.source)
            written = statement.where.sql()
        project = compile_columns(kind, statement.columns, statement.source, statement.column_offsets)
        kinds = (short(catalog.ResourceKind, kind),)
        return WatchFilter(kinds, "", "", matches, project, (written, statement.columns))


def _ordered(kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if not kinds or kind in kinds)


def _name(name: str, kinds: tuple[str, ...]) -> str:
    """A name as it is stored; that of a link is `sending->receiving`."""
    if not name:
        return ""
    sending, arrow, receiving = name.partition("->")
    if arrow:
        return link_name(fold(sending.strip()), fold(receiving.strip()))
    if set(kinds) & set(LOG_KINDS) and not topic_fault(name):
        # It may be the name of a topic, whose rule is wider: then nothing else has it.
        return name.lower()
    return fold(name)

"""The one way in which a request changes the catalog, whatever it changes.

Leading, `request_id`, `validate_only`, planning again and the transaction are handled here for every mutation alike:

- A coordinator that does not lead refuses with NOT_LEADER and names the leader, in the error and in a trailer.
- With `request_id`, the answer is looked up and remembered in the transaction of the change: the same id and body get
  the first answer again, another body is refused, and an answer is remembered if and only if its change was committed.
  What was refused is not remembered: a retry is tried anew.
- A query is planned before the transaction, which checks that what was used is unchanged, else it is planned again.
  Where the transaction creates what its queries use, it is tried and rolled back until they are planned (drafts.py).
- With `validate_only`, everything is done and rolled back. Nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message

from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import operations, requests
from headgate_coordinator.catalog.drafts import Drafts, Unplanned
from headgate_coordinator.catalog.operations import OPERATIONS, Operation, Rules
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import NOT_LEADER, PLAN_OUTDATED

R = TypeVar("R", bound=Message)

LEADER_TRAILER = "headgate-leader"


class Leading(Protocol):
    """Whether this coordinator leads."""

    def require_term(self) -> int:
        """The term in which this coordinator leads, or NOT_LEADER with the leader's address in the metadata."""
        ...


class _DryRun(Exception):
    """Rolls a transaction back with the answer that it would have given."""

    def __init__(self, response: Message) -> None:
        super().__init__()
        self.response = response


@dataclass(frozen=True, slots=True)
class Part:
    """One of several transactions of a request, each remembered by itself."""

    index: int


@dataclass(frozen=True, slots=True)
class _Memory:
    """What an answer is remembered under; an empty request_id remembers nothing."""

    request_id: str
    method: str
    digest: bytes

    @classmethod
    def of(cls, request: Any, part: Part | None) -> _Memory:
        if not request.request_id:
            return cls("", "", b"")
        method = request.DESCRIPTOR.name.removesuffix("Request")
        suffix = "" if part is None else f" statement {part.index}"
        return cls(request.request_id + suffix, method + suffix, requests.digest_of(request))

    def lookup(self, tx: Tx) -> bytes | None:
        return requests.lookup(tx, self.request_id, self.method, self.digest) if self.request_id else None

    def remember(self, tx: Tx, response: Message) -> None:
        if self.request_id:
            requests.remember(tx, self.request_id, self.method, self.digest, response.SerializeToString())


class Mutations:
    """See above."""

    def __init__(self, store: Store, leading: Leading, rules: Rules, plan_attempts: int) -> None:
        self._store = store
        self._leading = leading
        self.plan_attempts = plan_attempts
        self.rules = rules

    async def run(self, request: Any, call: Call) -> Any:
        """Any mutation of `OPERATIONS`."""
        operation = OPERATIONS[type(request)]
        return await self.execute(
            request, operation.response, lambda tx: apply_alone(tx, request, operation, self.rules), call
        )

    async def accept(
        self,
        request: Any,
        response_type: type[R],
        plan: Callable[[], Awaitable[PlannedQuery]],
        body: Callable[[Tx, PlannedQuery], R],
        call: Call,
        part: Part | None = None,
    ) -> R:
        """Accepts a query: `plan` plans it outside the transaction, again if the catalog changed meanwhile."""
        known = await self.replay(request, response_type, call, part)
        if known is not None:
            return known
        changed: PlanChanged | None = None
        for _ in range(self.plan_attempts):
            planned = await plan()
            try:
                return await self.execute(request, response_type, partial(_with_plan, body, planned), call, part)
            except PlanChanged as error:
                changed = error
        raise HeadgateError(
            PLAN_OUTDATED,
            f"the catalog changed under the plan {self.plan_attempts} times, last because {changed}; try again",
        )

    async def accept_all(
        self,
        request: Any,
        response_type: type[R],
        drafts: Drafts,
        plan: Callable[[Unplanned], Awaitable[Drafts]],
        body: Callable[[Tx, Drafts], R],
        call: Call,
    ) -> R:
        """Accepts what may hold queries among other changes: tries `body`, and has `plan` plan what it wants."""
        # Ends: a try that fails wants a plan of one query more, or finds one outdated, which is counted.
        while True:
            try:
                return await self.execute(request, response_type, partial(_with_drafts, body, drafts), call)
            except Unplanned as unplanned:
                drafts = await plan(unplanned)

    async def execute(
        self,
        request: Any,
        response_type: type[R],
        body: Callable[[Tx], R],
        call: Call,
        part: Part | None = None,
    ) -> R:
        """Runs `body` in one write transaction, under the rules above."""
        with naming_leader(call):
            term = self._leading.require_term()
            memory = _Memory.of(request, part)

            def operation(tx: Tx) -> R:
                known = memory.lookup(tx)
                if known is not None:
                    return response_type.FromString(known)
                response = body(tx)
                if request.validate_only:
                    raise _DryRun(response)
                memory.remember(tx, response)
                return response

            try:
                return await self._store.write(operation, term)
            except _DryRun as done:
                return cast(R, done.response)

    async def replay(self, request: Any, response_type: type[R], call: Call, part: Part | None = None) -> R | None:
        """The answer that was given to this request_id, before any work is done for it; None if there is none."""
        with naming_leader(call):
            self._leading.require_term()
            memory = _Memory.of(request, part)
            known = await self._store.read(memory.lookup) if memory.request_id else None
        return None if known is None else response_type.FromString(known)


@contextmanager
def naming_leader(call: Call) -> Iterator[None]:
    """Names the leader in a trailer too, for callers that do not read error details."""
    try:
        yield
    except HeadgateError as error:
        leader = error.metadata.get("leader", "")
        if error.reason is NOT_LEADER and leader:
            call.trailers[LEADER_TRAILER] = leader
        raise


def _with_plan(body: Callable[[Tx, PlannedQuery], R], planned: PlannedQuery, tx: Tx) -> R:
    return body(tx, planned)


def _with_drafts(body: Callable[[Tx, Drafts], R], drafts: Drafts, tx: Tx) -> R:
    return body(tx, drafts)


def apply_alone(tx: Tx, request: Message, operation: Operation, rules: Rules) -> Any:
    """One operation that is a transaction of its own."""
    resource = operation.apply(tx, request, rules)
    operations.settle(tx, rules)
    return operations.respond(operation, resource)

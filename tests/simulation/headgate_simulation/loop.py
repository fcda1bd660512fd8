"""A single-threaded asyncio event loop on virtual time.

Contract:
- Time moves only when nothing is ready, and then jumps to the next timer. A day of timers passes in a blink.
- One seed gives one order of callbacks, whatever PYTHONHASHSEED, the machine or the runs before. Callbacks of one
  `Domain` (a process) run in the order asyncio promises; those of different domains that are ready at the same instant
  are interleaved by the seed.
- A domain can be held (nothing of it runs until it is released, then all of it is late) or killed (nothing of it ever
  runs again, and nothing that its `finally` blocks schedule).
- Nothing ready, no timer and the main task not done is a `Deadlock`; too many callbacks without time moving is a
  `BusyLoop`; time beyond `time_limit` is `Endless`. All name the tasks concerned.
- Threads are refused. A method that production runs on one is run by its own object, if that has `run_on_thread`, which
  takes what is to be run and the method's name and returns a future: a simulated thread, on this loop.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
import random
import sys
import warnings
from asyncio import events
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, TypeVar, cast

T = TypeVar("T")

# asyncio's register of all tasks, under the name that Python 3.11 or that later ones have for it.
_REGISTER: Any = vars(asyncio.tasks)["_all_tasks" if "_all_tasks" in vars(asyncio.tasks) else "_scheduled_tasks"]
# Callbacks that may run at one instant of virtual time before the loop is called busy.
BUSY_LIMIT = 50_000
# Tasks, finished ones among them, that are remembered before the finished ones are forgotten.
PRUNE = 1024


class SimulationError(Exception):
    """The simulated system did something that no run may do."""


class Deadlock(SimulationError):
    """Everybody waits, and nothing will ever wake them."""


class BusyLoop(SimulationError):
    """Callbacks keep each other running and time stands still."""


class Endless(SimulationError):
    """Time passes and passes, and the main task does not end."""


class Killed(BaseException):
    """Raised where a killed process would have an effect. Not an `Exception`: production code must not catch it."""


class Domain:
    """What is held and killed as one: the life of one simulated process."""

    __slots__ = ("alive", "backlog", "context", "held", "name", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.held = False
        self.backlog: list[Ready] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = copy_context()
        self.context.run(DOMAIN.set, self)

    def check(self) -> None:
        """Called by everything with an effect outside the process."""
        if not self.alive:
            raise Killed(self.name)


DOMAIN: ContextVar[Domain | None] = ContextVar("headgate_simulation_domain", default=None)


def _nothing() -> None:
    """Stands in for the callback of a handle that was cancelled."""


class Handle:
    """What `call_soon` and `call_at` return: asyncio's TimerHandle, less what costs time."""

    __slots__ = ("callback", "dead", "domain", "scope", "values", "when_")

    def __init__(self, callback: Callable[..., object], values: tuple[Any, ...], scope: Context, when: float) -> None:
        self.callback = callback
        self.values = values
        self.scope = scope
        self.domain = scope.get(DOMAIN)
        self.dead = False
        self.when_ = when

    def cancel(self) -> None:
        self.dead = True
        # What it would have called mostly knows it too: let go of, it needs no collector to be freed.
        self.callback = _nothing
        self.values = ()

    def cancelled(self) -> bool:
        return self.dead

    def when(self) -> float:
        return self.when_

    def __repr__(self) -> str:
        return f"<Handle {self.callback!r}>"


# What is to run at this instant: the callback, its values and context, the domain it belongs to, and the handle by
# which it can be cancelled, if somebody has it.
Ready = tuple[Callable[..., object], tuple[Any, ...], Context, Domain | None, Handle | None]


def _never() -> None:
    raise SimulationError("what a task or future has called soon cannot be cancelled")


class _Given(Handle):
    """For whoever gives a context to `call_soon`, as tasks and futures do: they never look at what it returns."""

    __slots__ = ()

    def cancel(self) -> None:
        _never()


class NumberedTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    __slots__ = ("domain", "number")

    number: int
    domain: Domain | None

    def __hash__(self) -> int:
        return self.number


def _forget(task: asyncio.Task[Any]) -> None:
    """Stands in for asyncio's register of all tasks, which is a set of weak references in Python: the loop keeps its
    own, and nothing that runs on it may ask for another's tasks."""


class SimulationLoop(asyncio.AbstractEventLoop):
    """See the module's contract. `errors` holds what asyncio would have logged: exceptions that nobody took."""

    def __init__(
        self, source: random.Random | None = None, *, busy_limit: int = BUSY_LIMIT, time_limit: float = math.inf
    ) -> None:
        self._time_limit = time_limit
        self._source = source
        # (called for everything that waits: this is not a method, so that no frame of Python is made for it)
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self._now = 0.0
        self._sequence = 0
        self._ready: deque[Ready] = deque()
        self._given = _Given(_never, (), copy_context(), 0.0)
        self._timers: list[tuple[float, int, Handle]] = []
        self._tasks = 0
        self._all: list[asyncio.Task[Any]] = []
        self._prune_at = PRUNE
        self._busy_limit = busy_limit
        self._running = False
        self._stopping = False
        self._closed = False
        self._generators: dict[int, Domain | None] = {}
        self.steps = 0
        self.errors: list[dict[str, Any]] = []

    # Scheduling

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        if context is not None:
            self._ready.append((callback, args, context, context.get(DOMAIN), None))
            return self._given
        handle = Handle(callback, args, copy_context(), self._now)
        self._ready.append((callback, args, handle.scope, handle.domain, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        when = self._now + delay
        handle = Handle(callback, args, context if context is not None else copy_context(), when)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context if context is not None else copy_context(), when)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        named = name or getattr(coro, "__qualname__", "task")
        task: NumberedTask[T] = NumberedTask.__new__(NumberedTask)
        self._tasks += 1
        task.number = self._tasks
        task.__init__(coro, loop=self, name=named, context=context)  # type: ignore[misc]
        domain = task.domain = DOMAIN.get() if context is None else context.get(DOMAIN)
        if domain is not None:
            domain.tasks.append(task)
            if not domain.alive:
                self._discard(task, domain)
        self._all.append(task)
        if len(self._all) >= self._prune_at:
            self._prune()
        return task

    def _prune(self) -> None:
        """Forgets finished tasks now and then, which costs less than a callback on each."""
        self._all = [task for task in self._all if not task.done()]
        self._prune_at = max(PRUNE, 2 * len(self._all))
        for domain in {id(d): d for task in self._all if (d := _domain_of(task))}.values():
            domain.tasks = [task for task in domain.tasks if not task.done()]

    # Running

    def run_until_complete(self, future: Any) -> Any:
        if self._running or self._closed:
            raise RuntimeError("the loop is running or closed")
        main = asyncio.ensure_future(future, loop=self)
        previous = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_abandoned)
        vars(_REGISTER)["add"] = _forget
        events._set_running_loop(self)
        self._running = True
        try:
            self._run(main)
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*previous)
            del vars(_REGISTER)["add"]
        return main.result()

    def _run(self, main: asyncio.Future[Any]) -> None:
        ready, timers, source, pop = self._ready, self._timers, self._source, heapq.heappop
        at_instant = 0
        while not main.done():
            now = self._now
            while timers:
                when, _, handle = timers[0]
                if handle.dead:
                    pop(timers)
                elif when <= now:
                    pop(timers)
                    ready.append((handle.callback, handle.values, handle.scope, handle.domain, handle))
                else:
                    break
            if not ready:
                if not timers:
                    raise Deadlock(f"at {self._now:.6f} s everybody waits:\n{self.describe_tasks()}")
                self._now = timers[0][0]
                at_instant = 0
                if self._now > self._time_limit:
                    raise Endless(f"after {self._now:.0f} s the run has not ended:\n{self.describe_tasks()}")
                continue
            count = len(ready)
            at_instant += count
            if at_instant > self._busy_limit:
                raise BusyLoop(f"{at_instant} callbacks at {self._now:.6f} s:\n{self._describe_ready()}")
            if count > 1 and source is not None:
                self._interleave(source)
            for _ in range(count):
                one = ready.popleft()
                callback, values, scope, domain, cancellable = one
                if cancellable is not None and cancellable.dead:
                    continue
                if domain is not None:
                    if not domain.alive:
                        continue
                    if domain.held:
                        domain.backlog.append(one)
                        continue
                self.steps += 1
                try:
                    scope.run(callback, *values)
                except (SystemExit, KeyboardInterrupt, SimulationError):
                    raise
                except Killed:
                    pass
                except BaseException as error:  # as asyncio does: a callback that raises stops nobody else
                    self.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})

    def _interleave(self, source: random.Random) -> None:
        """Mixes the ready callbacks of different domains; those of one domain keep their order."""
        ready = self._ready
        first = ready[0][3]
        for one in ready:
            if one[3] is not first:
                break
        else:
            return
        by_domain: dict[int, deque[Ready]] = {}
        labels: list[int] = []
        numbers: dict[int, int] = {}
        for one in ready:
            label = numbers.setdefault(id(one[3]), len(numbers))
            labels.append(label)
            by_domain.setdefault(label, deque()).append(one)
        # As `shuffle` does it, with the same draws, and less than half the time.
        draw = source.getrandbits
        for last in range(len(labels) - 1, 0, -1):
            bits = (last + 1).bit_length()
            other = draw(bits)
            while other > last:
                other = draw(bits)
            labels[last], labels[other] = labels[other], labels[last]
        ready.clear()
        ready.extend(by_domain[label].popleft() for label in labels)

    # Domains

    def hold(self, domain: Domain) -> None:
        domain.held = True

    def release(self, domain: Domain) -> None:
        domain.held = False
        backlog, domain.backlog = domain.backlog, []
        if domain.alive:
            self._ready.extend(backlog)

    def kill(self, domain: Domain) -> None:
        """Ends a domain at once. Its coroutines are closed in the order of their creation; whatever their `finally`
        blocks try has no effect."""
        domain.alive = False
        domain.held = False
        domain.backlog = []
        tasks, domain.tasks = domain.tasks, []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that a `finally` made and could not await
            for task in tasks:
                if not task.done():
                    self._discard(task, domain)

    def _discard(self, task: asyncio.Task[Any], domain: Domain) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        if coroutine is None or getattr(coroutine, "cr_running", False):
            return  # (it is what called this; it ends at its next effect or await)
        try:
            domain.context.copy().run(cast(Coroutine[Any, Any, Any], coroutine).close)
        except (Killed, RuntimeError):
            pass  # a `finally` that awaits: a crashed process does not get to
        except Exception as error:
            self.call_exception_handler({"message": f"{task.get_name()} at its end", "exception": error})

    # Asynchronous generators, as asyncio treats them: one that is dropped half-way is closed by a task.

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = DOMAIN.get()

    def _generator_abandoned(self, generator: AsyncGenerator[Any, Any]) -> None:
        domain = self._generators.pop(id(generator), None)
        closing = generator.aclose()
        if domain is None or domain.alive:
            context = domain.context.copy() if domain is not None else None
            if not self._closed:
                self.call_soon(self.create_task, _awaited(closing), context=context)
            return
        with suppress(StopIteration, StopAsyncIteration, Killed, RuntimeError):
            domain.context.copy().run(closing.send, None)

    # What a run leaves behind

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks that are neither done nor of a killed domain, oldest first."""
        return [t for t in self._all if not t.done() and ((d := _domain_of(t)) is None or d.alive)]

    def describe_tasks(self, limit: int = 20) -> str:
        pending = self.pending_tasks()
        lines = [_describe(task) for task in pending[:limit]]
        if len(pending) > limit:
            lines.append(f"  and {len(pending) - limit} more")
        return "\n".join(lines) or "  no task is pending"

    def _describe_ready(self) -> str:
        counts = Counter(_name_of(callback, domain) for callback, _, _, domain, _ in self._ready)
        return "\n".join(f"  {name}" for name, _ in counts.most_common(10)) or "  nothing is ready"

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):
            self.errors.append(context)

    # The rest of a loop

    # (asked for with every future and task: what answers False without a frame of Python)
    get_debug = staticmethod(bool)

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        for task in self._all:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                domain = _domain_of(task) or Domain("nobody")
                domain.alive = False
                self._discard(task, domain)
        self._all.clear()
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> NoReturn:  # type: ignore[override]
        raise SimulationError("call_soon_threadsafe: there are no threads in a simulation")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        # `asyncio.to_thread` runs the method in a context.
        in_context = type(func) is functools.partial and type(getattr(func.func, "__self__", None)) is Context
        method = func.args[0] if in_context else func
        run = getattr(getattr(method, "__self__", None), "run_on_thread", None)
        if run is None:
            raise SimulationError(f"run_in_executor({func!r}): there are no threads in a simulation")
        future: asyncio.Future[Any] = run(functools.partial(func, *args), method.__name__)
        return future


async def _awaited(closing: Coroutine[Any, Any, None]) -> None:
    await closing


def _domain_of(task: asyncio.Task[Any]) -> Domain | None:
    return getattr(task, "domain", None)


def _name_of(callback: Callable[..., object], domain: Domain | None) -> str:
    owner = getattr(callback, "__self__", None)
    where = f" of {domain.name}" if domain is not None else ""
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()}{where}"
    return f"{getattr(callback, '__qualname__', callback)!s}{where}"


def _describe(task: asyncio.Task[Any]) -> str:
    domain = _domain_of(task)
    where = f" of {domain.name}" if domain is not None else ""
    frames = task.get_stack(limit=1)
    at = f" at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return f"  {task.get_name()}{where}{at}"

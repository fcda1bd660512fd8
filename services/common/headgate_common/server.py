"""A server process, from its command line to its exit code. A service's `main` is a call of `run_server`.

    @asynccontextmanager
    async def build(config: AgentConfig, runtime: Runtime) -> AsyncIterator[App]:
        registry = FragmentRegistry(...)
        runtime.supervise(registry.run(), "fragments")
        yield App(services=[FragmentService(registry)], unready=registry.unready)
        await registry.close()

    def main() -> int:
        return run_server("agent", AgentConfig, build, summary="Runs fragments for a coordinator.")

Life: settings are read and shown; addresses are checked and taken; `build` makes the service; calls are answered. The
first SIGTERM or SIGINT drains: `App.draining` is called, health says NOT_SERVING, calls in flight finish within
`server.limits.drain`, then `build` resumes after its `yield`. A second signal ends the process at once. A supervised
task that fails drains the server too, and the process ends with 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from headgate_common import descriptors, logs
from headgate_common.arguments import Flag, parse
from headgate_common.clock import Clock, SystemClock
from headgate_common.config import ConfigError, Loaded, describe
from headgate_common.dispatch import Service
from headgate_common.errors import COMMON, HeadgateError, ReasonTable
from headgate_common.http import HttpServer, standard_routes
from headgate_common.ids import Ids, RandomIds
from headgate_common.metrics import RpcMetrics, new_registry
from headgate_common.rpc import RpcServer
from headgate_common.settings import HasServer, ServerConfig
from headgate_common.tls import advertised, channel_credentials, check_listen, http_context, server_credentials
from headgate_common.tracing import Tracing, make_tracing
from headgate_common.transport import GrpcTransport

log = logging.getLogger(__name__)

C = TypeVar("C", bound=HasServer)

EXIT_FAILED = 1
EXIT_MISUSED = 2
_LOOK_SECONDS = 1.0
_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class App:
    """What a service gives its server."""

    services: Sequence[Service]
    # Why it should get no work now; none means ready. Asked often, must not wait.
    unready: Callable[[], Sequence[str]] = tuple
    # Called once when draining begins, before calls in flight are waited for: to leave a cluster, to give up a grant.
    draining: Callable[[], Awaitable[None]] | None = None


@dataclass(slots=True)
class Runtime:
    """What a server gives its service: the outside world, to be passed on."""

    service: str
    version: str
    # Where others reach this process.
    address: str
    clock: Clock
    ids: Ids
    source: random.Random
    registry: CollectorRegistry
    transport: GrpcTransport
    tracing: Tracing
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failure: BaseException | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def supervise(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Runs a part of the service for as long as the process lives: its failure ends the process."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        if isinstance(error, HeadgateError):
            # Its sentence says all; where it was raised says nothing to whoever reads the log.
            log.critical("task failed", extra={"task": task.get_name(), "error": str(error)})
        else:
            log.critical("task failed", extra={"task": task.get_name()}, exc_info=error)
        self.failure = self.failure or error
        self.stopping.set()

    async def cancel_tasks(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
            for task in left:
                log.error("task does not end", extra={"task": task.get_name()})


Build = Callable[[C, Runtime], AbstractAsyncContextManager[App]]


def run_server(
    service: str,
    config_type: type[C],
    build: Build[C],
    *,
    summary: str,
    flags: Sequence[Flag] = (),
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
    reasons: ReasonTable = COMMON,
    argv: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Runs a service until it is told to stop, and returns the exit code of its process."""
    # The C core of gRPC writes its own lines to standard error; only its errors belong in a log of events.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        version = metadata.version(f"headgate-{service}")
    except metadata.PackageNotFoundError:
        version = "unknown"
    try:
        arguments = parse(
            config_type,
            service=service,
            version=version,
            summary=summary,
            argv=sys.argv[1:] if argv is None else argv,
            environment=os.environ if environment is None else environment,
            flags=flags,
            profiles=profiles,
        )
        if arguments.show_config:
            sys.stdout.write(_table(arguments.loaded))
            return 0
        server: ServerConfig = arguments.loaded.config.server
        _check_addresses(server)
        logs.configure(server.log_format, server.log_level)
        descriptors.raise_limit()
        return asyncio.run(_Process(service, version, arguments.loaded, build, reasons).run())
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"headgate-{service}: {problem}\n")
        return EXIT_MISUSED
    except HeadgateError as error:
        sys.stderr.write(f"headgate-{service}: {error}\n")
        return EXIT_FAILED
    except Exception:
        log.critical("failed", exc_info=True)
        return EXIT_FAILED


class _Process:
    """One run of a server, inside its event loop."""

    def __init__(
        self, service: str, version: str, loaded: Loaded[Any], build: Build[Any], reasons: ReasonTable
    ) -> None:
        self._service = service
        self._version = version
        self._loaded = loaded
        self._server: ServerConfig = loaded.config.server
        self._build = build
        self._reasons = reasons
        self._stopping = asyncio.Event()
        self._starting: asyncio.Task[Any] | None = None
        self._unready: Callable[[], Sequence[str]] = lambda: ("starting",)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        self._starting = asyncio.current_task()
        log.info(
            "starting",
            extra={"service": self._service, "version": self._version, "descriptors": descriptors.limit()},
        )
        log.info("settings", extra={f"config.{key}": value for key, value, _ in describe(self._loaded)})
        try:
            return await self._serve()
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            log.info("stopped before it had started")
            return 0

    def _signalled(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            log.warning("ending at once", extra={"signal": number.name})
            logging.shutdown()
            os._exit(128 + number)
        log.info("signal received", extra={"signal": number.name})
        self._stopping.set()
        if self._starting is not None:
            self._starting.cancel()

    async def _serve(self) -> int:
        config, clock, source = self._server, SystemClock(), random.SystemRandom()
        registry = new_registry(self._service, self._version)
        metrics = RpcMetrics(registry)
        async with AsyncExitStack() as stack:
            ids = RandomIds(source)
            tracing = make_tracing(config.tracing, self._service, self._version, ids.uid("process"))
            stack.callback(tracing.close)
            rpc = RpcServer(metrics, limits=config.limits, tracing=tracing, clock=clock, source=source)
            stack.push_async_callback(rpc.stop)
            bound = rpc.bind(config.listen, server_credentials(config.tls))
            http = HttpServer(standard_routes(registry, lambda: self._reasons_unready(rpc)))
            stack.push_async_callback(http.close)
            pages = await http.start(config.http_listen, http_context(config.tls)) if config.http_listen else ""
            transport = GrpcTransport(
                credentials=channel_credentials(config.tls), reasons=self._reasons, tracing=tracing
            )
            stack.push_async_callback(transport.close)
            runtime = Runtime(
                service=self._service,
                version=self._version,
                address=advertised(config.advertise, bound),
                clock=clock,
                ids=ids,
                source=source,
                registry=registry,
                transport=transport,
                tracing=tracing,
                stopping=self._stopping,
            )
            app = await stack.enter_async_context(self._build(self._loaded.config, runtime))
            stack.push_async_callback(runtime.cancel_tasks)
            await rpc.start(app.services, ids, serving=not app.unready())
            self._starting = None
            self._unready = app.unready
            runtime.supervise(self._look(rpc, metrics, clock), "health")
            log.info("listening", extra={"address": bound, "advertise": runtime.address, "http": pages})
            await self._stopping.wait()
            await self._drain(rpc, app)
            if isinstance(runtime.failure, HeadgateError):
                # The last line on standard error says why.
                raise runtime.failure
            return EXIT_FAILED if runtime.failure else 0

    async def _drain(self, rpc: RpcServer, app: App) -> None:
        log.info("draining", extra={"grace": self._server.limits.drain})
        leaving = asyncio.ensure_future(app.draining()) if app.draining else None
        finished = await rpc.drain()
        if leaving is not None:
            try:
                await asyncio.wait_for(leaving, _CANCEL_SECONDS)
            except Exception as error:
                log.warning("leaving failed", extra={"error": str(error)})
        log.log(logging.INFO if finished else logging.WARNING, "drained", extra={"finished": finished})

    def _reasons_unready(self, rpc: RpcServer) -> Sequence[str]:
        return ("draining",) if rpc.draining else self._unready()

    async def _look(self, rpc: RpcServer, metrics: RpcMetrics, clock: Clock) -> None:
        """Keeps gRPC health equal to readiness, and measures how late the event loop is."""
        while not rpc.draining:
            rpc.health.set(serving=not self._reasons_unready(rpc))
            asleep = clock.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
            metrics.loop_lag.set(max(0.0, clock.monotonic() - asleep - _LOOK_SECONDS))


def _check_addresses(config: ServerConfig) -> None:
    """Refuses bad addresses before anything is started or logged."""
    check_listen(config.listen, config.tls, insecure=config.insecure)
    if config.http_listen:
        check_listen(config.http_listen, config.tls, insecure=config.insecure)
    advertised(config.advertise, config.listen)


def _table(loaded: Loaded[Any]) -> str:
    lines = describe(loaded)
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "".join(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}\n" for key, value, origin in lines)

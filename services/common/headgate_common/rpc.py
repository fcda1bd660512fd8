"""A gRPC server around a `Dispatcher`.

What a caller may rely on, whichever service answers:

- Every error carries an `ErrorInfo`: bad bytes, invalid UTF-8 and unknown methods too.
- A server that has enough to do answers OVERLOADED at once, with a delay to wait, before it reads the request.
- A call has a deadline: its caller's, or the server's default. Its handler is cancelled when the caller gives up.
- A server that drains answers SHUTTING_DOWN to new calls, finishes the calls it has, and ends streams with
  SHUTTING_DOWN, so that they can be resumed elsewhere. Health is answered to the end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

import grpc
import grpc.aio

from headgate_common.calls import Desk, Lane, MethodHandler, Router
from headgate_common.clock import Clock, SystemClock
from headgate_common.config import ConfigError
from headgate_common.dispatch import Dispatcher, Service
from headgate_common.health import Health
from headgate_common.ids import Ids
from headgate_common.metrics import RpcMetrics, gauge
from headgate_common.reflection import reflection_handlers
from headgate_common.settings import LimitsConfig
from headgate_common.tls import join_address, split_address
from headgate_common.tracing import Tracing

log = logging.getLogger(__name__)

# Health watches have a bound of their own: `limits.streams` may be used up just when health is asked for.
_MAX_HEALTH_WATCHES = 256
# What a cancelled call gets to send its last word.
_LAST_WORD = 1.0


class RpcServer:
    """One listening address and the services behind it. Made, bound, started, drained and stopped once."""

    def __init__(
        self,
        metrics: RpcMetrics,
        *,
        limits: LimitsConfig | None = None,
        tracing: Tracing | None = None,
        clock: Clock | None = None,
        source: random.Random | None = None,
    ) -> None:
        self._limits = limits or LimitsConfig()
        self._desk = Desk(
            self._limits, metrics, tracing or Tracing(), clock or SystemClock(), source or random.SystemRandom()
        )
        self._server = grpc.aio.server(options=_options(self._limits))
        self.health = Health()
        self._watches = Lane(_MAX_HEALTH_WATCHES, 0)
        lanes = {("call",): self._desk.calls.admission, ("stream",): self._desk.streams.admission}
        gauge(
            metrics.registry,
            "headgate_rpc_in_flight",
            "Calls and streams worked on now.",
            lambda: {kind: lane.running for kind, lane in lanes.items()},
            ("kind",),
        )
        gauge(
            metrics.registry,
            "headgate_rpc_queued",
            "Calls that wait for their turn.",
            lambda: self._desk.calls.admission.waiting,
        )

    @property
    def draining(self) -> bool:
        return self._desk.draining

    def bind(self, listen: str, credentials: grpc.ServerCredentials | None = None) -> str:
        """Takes the address and returns it with the port that was taken. Nothing is answered before `start`."""
        host, port = split_address(listen)
        wanted = join_address(host or "::", port)
        try:
            if credentials is None:
                taken = self._server.add_insecure_port(wanted)
            else:
                taken = self._server.add_secure_port(wanted, credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {listen}: the address is in use or not of this machine, or the certificate cannot "
                "be used; choose the address with --listen"
            ) from error
        return join_address(host, taken)

    async def start(self, services: Sequence[Service], ids: Ids | None = None, *, serving: bool = True) -> None:
        """Begins to answer. `services` are plain objects (see `dispatch`); `serving` is what health says at first."""
        desk = self._desk
        names = [service.descriptor.full_name for service in services]
        self.health.cover(names)
        served = Dispatcher(services, ids)
        exempt = Dispatcher([self.health], ids)
        checks = Lane(self._limits.in_flight, self._limits.queue)
        handlers = [
            MethodHandler(desk, served, method, desk.streams if method.streams else desk.calls)
            for method in served.methods()
        ]
        handlers += [
            MethodHandler(desk, exempt, method, self._watches if method.streams else checks, exempt=True)
            for method in exempt.methods()
        ]
        self._server.add_generic_rpc_handlers(reflection_handlers([*names, self.health.descriptor.full_name]))
        self._server.add_generic_rpc_handlers([Router({one.path: one for one in handlers}, desk.metrics)])
        await self._server.start()
        self.health.set(serving=serving)

    async def drain(self) -> bool:
        """Takes on nothing more and lets calls in flight finish, as the limits say. Says whether all did."""
        desk, limits = self._desk, self._limits
        desk.draining = True
        self.health.set(serving=False)
        desk.streams.cancel()
        # The notice gives callers a refusal that says "nothing was done", where a closed door would leave it open.
        finished, _ = await asyncio.gather(desk.calls.emptied(limits.drain), asyncio.sleep(limits.drain_notice))
        if not finished:
            desk.cut_off = True
            desk.calls.cancel()
            await desk.calls.emptied(_LAST_WORD)
        await desk.streams.emptied(_LAST_WORD)
        return finished

    async def stop(self) -> None:
        """Closes the address and every connection."""
        self._desk.draining = self._desk.cut_off = True
        for lane in (self._desk.calls, self._desk.streams, self._watches):
            lane.cancel()
        await self._server.stop(_LAST_WORD)


def _options(limits: LimitsConfig) -> list[tuple[str, int]]:
    return [
        # Two servers on one port would each get some of the calls: better an error.
        ("grpc.so_reuseport", 0),
        # Up to twice the limit is read, to be refused with a reason; beyond that gRPC refuses by itself.
        ("grpc.max_receive_message_length", 2 * limits.message_size),
        ("grpc.max_send_message_length", -1),
        # One connection cannot hold more calls than a full server has, twice over.
        ("grpc.max_concurrent_streams", 2 * (limits.in_flight + limits.queue + limits.streams)),
        # A peer that vanished is noticed and its calls cancelled.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]

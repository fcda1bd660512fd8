"""Task slots of realtime runs: each holds one for every partition that it reads, for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.errors import NO_SLOT, TOO_FEW_SLOTS
from headgate_engine.fragments.errors import failure_of
from headgate_engine.fragments.kafka import partitions_of
from headgate_engine.fragments.query import topic_origins
from headgate_engine.fragments.settings import is_realtime
from headgate_engine.spark import SparkHost

# Brokers that are asked last have at least this long.
_SHORTEST_SECONDS = 1.0


class Slots:
    """Counts slots. Used from threads."""

    def __init__(self, total: Callable[[], int], reserved: int, *, grows: bool = False) -> None:
        """`grows`: there may be more of them later, as executors of a cluster come."""
        self._total = total
        self._reserved = reserved
        self._grows = grows
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, wanted: int) -> Callable[[], None]:
        """Takes slots, or raises NO_SLOT; TOO_FEW_SLOTS where there will never be so many. Answers how to give them
        back, once."""
        with self._lock:
            free = self._total() - self._reserved - self._taken
            if wanted > free:
                never = wanted > free + self._taken and not self._grows
                raise HeadgateError(
                    TOO_FEW_SLOTS if never else NO_SLOT,
                    f"the run needs {wanted} task slots, one for each partition, and {max(0, free)} of {self._total()} "
                    f"are free for realtime runs ({self._reserved} are kept for micro-batches)",
                    metadata={"wanted": str(wanted), "free": str(max(0, free))},
                )
            self._taken += wanted
        given_back = threading.Event()

        def give_back() -> None:
            with self._lock:
                if not given_back.is_set():
                    given_back.set()
                    self._taken -= wanted

        return give_back


def admit(request: engine.StartFragmentRequest, host: SparkHost, slots: Slots, brokers: float) -> Callable[[], None]:
    """Takes what a run holds for as long as it is there. Asks the brokers, so it is called in a thread; they have
    `brokers` seconds to answer, all of them together: whoever waits for the start does not wait for longer."""
    if not is_realtime(request):
        return lambda: None
    host.require_kafka()
    until = time.monotonic() + brokers
    try:
        wanted = sum(
            partitions_of(
                host.root, origin.options, request.kafka_bootstrap, max(_SHORTEST_SECONDS, until - time.monotonic())
            )
            for origin in topic_origins(request)
        )
    except HeadgateError:
        raise
    except Exception as error:
        raise failure_of(error).to_error() from error
    return slots.take(max(1, wanted))

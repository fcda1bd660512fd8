"""How a run comes to its end with nothing left in flight.

Edges end by themselves, with a mark that closes every window (`executor/reading.py`). Topics never do: for a soft stop
the query is stopped, drained to the offsets of that moment, given a mark through its control folder, and drained again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from headgate_engine.executor.calls import EdgeClient
from headgate_engine.executor.reading import FAR_FUTURE_US
from headgate_engine.executor.wire import EdgeError
from headgate_engine.fragments.control import write_mark
from headgate_engine.fragments.query import Query

log = logging.getLogger(__name__)


def have_ended(edges: list[EdgeClient]) -> bool:
    """Whether every edge has an end that is there to be read."""
    try:
        return all(partition.ended for edge in edges for partition in edge.get())
    except EdgeError as error:
        # The query itself reads the same edge, and decides how long it waits for it.
        log.warning("edge does not answer", extra={"error": str(error)})
        return False


def settle(query: StreamingQuery, look: Callable[[], None], seconds: float) -> None:
    """Waits until all that is there has been read, and every batch that follows from it has been written.

    `look` is called every `seconds` and may raise to give up."""
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            query.processAllAvailable()
        except BaseException as error:
            caught.append(error)

    waiting = threading.Thread(target=wait, name="settle", daemon=True)
    waiting.start()
    while waiting.is_alive():
        waiting.join(seconds)
        look()
        if waiting.is_alive() and not query.isActive:
            break
    if caught:
        raise caught[0]
    failed = query.exception()
    if failed is not None:
        raise failed


def drain_topics(query: Query, look: Callable[[], None], seconds: float) -> None:
    """Reads topics up to this moment, closes every window, and leaves the query stopped."""
    assert query.running is not None
    if query.output.gate is not None:
        query.output.gate.stop(query.running, look, seconds)
    else:
        query.running.stop()
    # The next start is another query to Spark: what this one has to report is only seen now.
    look()
    _run_out(query, look, seconds)
    controls = [entry.control for entry in query.inputs if entry.control]
    if controls:
        for control in controls:
            write_mark(query.host.root, control, FAR_FUTURE_US)
        _run_out(query, look, seconds)


def _run_out(query: Query, look: Callable[[], None], seconds: float) -> None:
    running = query.start(available_now=True)
    while not running.awaitTermination(seconds):  # type: ignore[arg-type]
        look()
    look()

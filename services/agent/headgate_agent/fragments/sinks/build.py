"""The sink that a fragment of a plan asks for, and what is left of it when the fragment is gone for good."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sinks.file import FileSink, slots_path
from headgate_agent.fragments.sinks.kafka import KafkaSink, discard_position
from headgate_agent.fragments.sinks.print import PrintSink, to_stdout
from headgate_agent.fragments.sinks.sink import Sink
from headgate_agent.fragments.sinks.topic import TopicLog, TopicSink, discard_notes
from headgate_agent.fragments.sinks.void import VoidSink
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class Reach:
    """What sinks beyond the agent's own node need. `topics` is None where the agent cannot reach the log."""

    clock: Clock
    source: random.Random
    topics: TopicLog | None = None


def build_sink(
    identity: str,
    fragment: catalog.SinkFragment,
    *,
    state: Path,
    config: FragmentConfig,
    blocking: Work,
    printed: Callable[[bytes], None] = to_stdout,
    reach: Reach | None = None,
) -> Sink:
    """The sink of a fragment, not opened yet; `identity` is the fragment's uid. PLAN_UNSUPPORTED or TARGET_FORBIDDEN if
    it can never run here: TOPIC and KAFKA sinks without `reach` cannot."""
    match fragment.type:
        case catalog.SINK_TYPE_FILE:
            names = [field.name for field in fragment.schema.fields]
            return FileSink(
                identity,
                fragment.options,
                names,
                fragment.update_keys,
                state=state,
                config=config,
                blocking=blocking,
            )
        case catalog.SINK_TYPE_PRINT:
            return PrintSink(fragment.options, blocking=blocking, write=printed)
        case catalog.SINK_TYPE_VOID:
            return VoidSink()
        case catalog.SINK_TYPE_TOPIC if reach is not None and reach.topics is not None:
            return TopicSink(
                identity,
                fragment.options,
                fragment.update_keys,
                topics=reach.topics,
                clock=reach.clock,
                source=reach.source,
                blocking=blocking,
            )
        case catalog.SINK_TYPE_KAFKA if reach is not None:
            return KafkaSink(
                identity,
                fragment.options,
                fragment.update_keys,
                clock=reach.clock,
                source=reach.source,
                blocking=blocking,
            )
        case other:
            name = catalog.SinkType.Name(other).removeprefix("SINK_TYPE_")
            raise HeadgateError(PLAN_UNSUPPORTED, f"a sink of type {name} is not delivered to from here")


async def discard_sink(
    identity: str, fragment: catalog.SinkFragment, *, state: Path, blocking: Work, reach: Reach | None = None
) -> None:
    """Removes what a sink has kept of its position, once its fragment is gone for good; rows stay where they are.
    May be repeated; raises a HeadgateError where the log that keeps it does not answer."""
    match fragment.type:
        case catalog.SINK_TYPE_FILE:
            await blocking.run(partial(slots_path(state, identity).unlink, missing_ok=True))
        case catalog.SINK_TYPE_TOPIC if reach is not None and reach.topics is not None:
            await discard_notes(reach.topics, identity)
        case catalog.SINK_TYPE_KAFKA:
            await discard_position(fragment.options, identity, blocking)
        case _:
            pass

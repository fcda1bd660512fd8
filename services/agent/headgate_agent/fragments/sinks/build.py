"""The sink that a fragment of a plan asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sinks.file import FileSink
from headgate_agent.fragments.sinks.print import PrintSink, to_stdout
from headgate_agent.fragments.sinks.sink import Sink
from headgate_agent.fragments.sinks.void import VoidSink
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError


def build_sink(
    identity: str,
    fragment: catalog.SinkFragment,
    *,
    state: Path,
    config: FragmentConfig,
    blocking: Work,
    printed: Callable[[bytes], None] = to_stdout,
) -> Sink:
    """The sink of a fragment, not opened yet; `identity` is the fragment's uid. PLAN_UNSUPPORTED or TARGET_FORBIDDEN if
    it can never run here. TOPIC and KAFKA sinks are built elsewhere."""
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
        case other:
            raise HeadgateError(PLAN_UNSUPPORTED, f"a sink of type {other} is not delivered to from here")

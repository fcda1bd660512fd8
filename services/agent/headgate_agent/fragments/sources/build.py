"""The source that a fragment of a plan asks for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.pushdown import compile_pushdown
from headgate_agent.fragments.sources.file import FileSource
from headgate_agent.fragments.sources.generator import GeneratorSource
from headgate_agent.fragments.sources.samples import SampleSource, Vitals, built_in_of, taking
from headgate_agent.fragments.sources.source import Source
from headgate_agent.fragments.sources.tcp import Connector, SocketConnector, TcpSource
from headgate_agent.fragments.tally import Tally
from headgate_agent.fragments.types import columns_of
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What sources and sinks of an agent share."""

    config: FragmentConfig
    clock: Clock
    blocking: Work
    source: random.Random
    connector: Connector = field(default_factory=SocketConnector)
    # What its fragments have done; `vitals` are there once the agent is put together.
    tally: Tally = field(default_factory=Tally)
    vitals: Callable[[], Vitals | None] = lambda: None


def build_source(fragment: catalog.SourceFragment, around: Surroundings) -> Source:
    """The source of a fragment, not opened yet. PLAN_UNSUPPORTED or TARGET_FORBIDDEN if it can never run here."""
    columns = columns_of(fragment.schema)
    shape = compile_pushdown(fragment, columns).apply
    match fragment.type:
        case catalog.SOURCE_TYPE_FILE:
            return FileSource(
                fragment.options,
                fragment.parser_options,
                columns,
                shape,
                config=around.config,
                clock=around.clock,
                blocking=around.blocking,
            )
        case catalog.SOURCE_TYPE_TCP:
            return TcpSource(
                fragment.options,
                fragment.parser_options,
                columns,
                shape,
                config=around.config,
                blocking=around.blocking,
                source=around.source,
                connector=around.connector,
            )
        case catalog.SOURCE_TYPE_GENERATOR:
            return GeneratorSource(
                fragment.options,
                columns,
                shape,
                config=around.config,
                clock=around.clock,
                blocking=around.blocking,
            )
        case catalog.SOURCE_TYPE_AGENT:
            built_in, vitals = built_in_of(fragment), around.vitals()
            if vitals is None:
                raise HeadgateError(PLAN_UNSUPPORTED, "this agent says nothing of itself")
            return SampleSource(
                built_in,
                vitals.agent,
                taking(built_in, vitals),
                shape,
                interval=around.config.sample_interval,
                clock=around.clock,
            )
        case other:
            raise HeadgateError(PLAN_UNSUPPORTED, f"a source of type {other} is not read by an agent")

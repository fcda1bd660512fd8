"""Types of sources, sinks and parsers: one declarative descriptor each. docs/sql/options.md is made from them.

`validate_source` and `validate_sink` give options in normal form (canonical names and values, defaults filled in), as
they are stored and sent to agents; `redact_source` and `redact_sink` what may be shown.
"""

from headgate_coordinator.catalog.descriptors.built_in import (
    BUILT_IN_NAMES,
    built_in_feeds,
    built_in_source,
    every_feed,
    is_built_in,
)
from headgate_coordinator.catalog.descriptors.options import REDACTED, Fault, Option, OptionType
from headgate_coordinator.catalog.descriptors.parsers import PARSERS, ParserDescriptor
from headgate_coordinator.catalog.descriptors.sinks import SINKS, SinkDescriptor
from headgate_coordinator.catalog.descriptors.sources import SOURCES, SourceDescriptor
from headgate_coordinator.catalog.descriptors.validate import (
    ValidSource,
    check_sink,
    check_source,
    is_bounded,
    redact_sink,
    redact_source,
    sink_descriptor,
    sink_type,
    source_descriptor,
    source_locus,
    source_type,
    takes_updates,
    validate_sink,
    validate_source,
)

__all__ = [
    "BUILT_IN_NAMES",
    "PARSERS",
    "REDACTED",
    "SINKS",
    "SOURCES",
    "Fault",
    "Option",
    "OptionType",
    "ParserDescriptor",
    "SinkDescriptor",
    "SourceDescriptor",
    "ValidSource",
    "built_in_feeds",
    "built_in_source",
    "check_sink",
    "check_source",
    "every_feed",
    "is_bounded",
    "is_built_in",
    "redact_sink",
    "redact_source",
    "sink_descriptor",
    "sink_type",
    "source_descriptor",
    "source_locus",
    "source_type",
    "takes_updates",
    "validate_sink",
    "validate_source",
]

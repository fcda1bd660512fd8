"""Checks what is given for a source or sink against its descriptor, and fills in defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.descriptors.built_in import AGENT
from headgate_coordinator.catalog.descriptors.generator import default_maker, maker_fault
from headgate_coordinator.catalog.descriptors.options import REDACTED, Fault, Option, OptionType, check_options
from headgate_coordinator.catalog.descriptors.parsers import CSV, JSON, PARSERS, ParserDescriptor, parser_of_path
from headgate_coordinator.catalog.descriptors.sinks import RESULT, SINKS, SinkDescriptor
from headgate_coordinator.catalog.descriptors.sources import SOURCES, SourceDescriptor
from headgate_coordinator.errors import INVALID_CONFIG, SINK_TYPE_UNKNOWN, SOURCE_TYPE_UNKNOWN
from headgate_coordinator.sql.errors import did_you_mean, one_of
from headgate_coordinator.sql.types import Column, columns_of


@dataclass(frozen=True, slots=True)
class ValidSource:
    """Options in normal form, defaults included, secrets as given."""

    options: dict[str, str]
    parser_options: dict[str, str]


def source_descriptor(type_: catalog.SourceType.ValueType) -> SourceDescriptor:
    """The descriptor of a type, or SOURCE_TYPE_UNKNOWN."""
    if type_ not in SOURCES:
        known = one_of(descriptor.name for descriptor in SOURCES.values())
        raise HeadgateError(SOURCE_TYPE_UNKNOWN, f"there is no type of source with number {type_}; there are {known}")
    return SOURCES[type_]


def sink_descriptor(type_: catalog.SinkType.ValueType) -> SinkDescriptor:
    """The descriptor of a type, or SINK_TYPE_UNKNOWN."""
    if type_ not in SINKS:
        known = one_of(descriptor.name for descriptor in SINKS.values())
        raise HeadgateError(SINK_TYPE_UNKNOWN, f"there is no type of sink with number {type_}; there are {known}")
    return SINKS[type_]


def validate_source(
    type_: catalog.SourceType.ValueType,
    options: Mapping[str, str],
    parser_options: Mapping[str, str],
    schema: catalog.Schema | None = None,
) -> ValidSource:
    """The options in normal form, or INVALID_CONFIG that lists everything that is wrong.

    Without a schema, what depends on the columns is not checked.
    """
    valid, faults = check_source(type_, options, parser_options, schema)
    _raise_faults(faults)
    return valid


def validate_sink(
    type_: catalog.SinkType.ValueType, options: Mapping[str, str], schema: catalog.Schema | None = None
) -> dict[str, str]:
    """The options in normal form, or INVALID_CONFIG that lists everything that is wrong."""
    valid, faults = check_sink(type_, options, schema)
    _raise_faults(faults)
    return valid


def check_source(
    type_: catalog.SourceType.ValueType,
    options: Mapping[str, str],
    parser_options: Mapping[str, str],
    schema: catalog.Schema | None = None,
) -> tuple[ValidSource, list[Fault]]:
    """As `validate_source`, with the faults as values."""
    descriptor = source_descriptor(type_)
    columns = columns_of(schema) if schema is not None else ()
    of_parsers = {name: "PARSER" for parser in descriptor.parsers for name in _parser_names(PARSERS[parser])}
    normal, faults = check_options("SOURCE", f"a {descriptor.name} source", descriptor.options, options, of_parsers)
    faults += _further(faults, descriptor.faults(normal))
    if type_ == catalog.SOURCE_TYPE_GENERATOR and schema is not None:
        faults += _complete_generator(normal, columns)
    parser_normal, parser_faults = _check_parser(descriptor, normal, parser_options, columns)
    return ValidSource(normal, parser_normal), faults + parser_faults


def check_sink(
    type_: catalog.SinkType.ValueType, options: Mapping[str, str], schema: catalog.Schema | None = None
) -> tuple[dict[str, str], list[Fault]]:
    """As `validate_sink`, with the faults as values."""
    descriptor = sink_descriptor(type_)
    columns = columns_of(schema) if schema is not None else ()
    normal, faults = check_options("SINK", f"a {descriptor.name} sink", descriptor.options, options)
    faults += _further(faults, descriptor.faults(normal))
    if type_ == catalog.SINK_TYPE_FILE and "input_format" not in normal and not _concerned(faults, "input_format"):
        speaking = parser_of_path(normal.get("file_path", ""))
        normal["input_format"] = speaking.name if speaking is CSV or speaking is JSON else "CSV"
    if normal.get("input_format") == "CSV":
        faults += _nested_faults("SINK", "input_format", columns)
    elif "input_format" in normal:
        given = {name.lower() for name in options}
        for option in descriptor.options:
            if option.meaning.startswith("CSV: "):
                faults += [
                    Fault("SINK", name, f"it has no effect with INPUT_FORMAT {normal['input_format']}")
                    for name in option.names
                    if name in given
                ]
                normal.pop(option.name, None)
    key = normal.get("key_column")
    if key is not None and columns:
        found = next((column for column in columns if column.name.lower() == key.lower()), None)
        if found is None:
            names = [column.name for column in columns]
            suggestion = did_you_mean(key, names) or f"there are {one_of(names[:10])}"
            faults.append(Fault("SINK", "key_column", f"the sink has no such column: {suggestion}"))
        else:
            normal["key_column"] = found.name
    return normal, faults


def source_type(name: str) -> catalog.SourceType.ValueType | None:
    """The type of a name in any case."""
    return next((d.type for d in SOURCES.values() if d.name == name.upper()), None)


def sink_type(name: str) -> catalog.SinkType.ValueType | None:
    """The type of a name in any case."""
    return next((d.type for d in SINKS.values() if d.name == name.upper()), None)


def is_bounded(type_: catalog.SourceType.ValueType, options: Mapping[str, str]) -> bool:
    """Whether a source with these options, in normal form, ends by itself."""
    return _source_in_plans(type_).bounded(options)


def source_locus(type_: catalog.SourceType.ValueType, options: Mapping[str, str], agent_uid: str) -> str:
    """What must be unique beside logical source and type: the agent where the source is node-local, else the topic."""
    locus = source_descriptor(type_).locus
    return agent_uid if locus is None else locus(options)


def takes_updates(type_: catalog.SinkType.ValueType, options: Mapping[str, str]) -> bool:
    """Whether a sink with these options, in normal form, takes rows that replace earlier ones."""
    return _sink_in_plans(type_).takes_updates(options)


def redact_source(type_: catalog.SourceType.ValueType, options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be shown."""
    return _redact(_source_in_plans(type_).options, options)


def redact_sink(type_: catalog.SinkType.ValueType, options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be shown."""
    return _redact(_sink_in_plans(type_).options, options)


def _source_in_plans(type_: catalog.SourceType.ValueType) -> SourceDescriptor:
    """The descriptor of a type that a plan may have: also that of the built-in sources, which nobody creates."""
    return AGENT if type_ == AGENT.type else source_descriptor(type_)


def _sink_in_plans(type_: catalog.SinkType.ValueType) -> SinkDescriptor:
    """The descriptor of a type that a plan may have: also that of temporary queries, which nobody creates."""
    return RESULT if type_ == RESULT.type else sink_descriptor(type_)


def _concerned(faults: list[Fault], option: str) -> bool:
    return any(fault.option == option for fault in faults)


def _further(known: list[Fault], faults: list[Fault]) -> list[Fault]:
    """Those that say something about options of which nothing is known to be wrong yet."""
    return [fault for fault in faults if not _concerned(known, fault.option)]


def _parser_names(parser: ParserDescriptor) -> tuple[str, ...]:
    return tuple(name for option in parser.options_for(records=False) for name in option.names)


def _redact(declared: tuple[Option, ...], options: Mapping[str, str]) -> dict[str, str]:
    secrets = {name for option in declared if option.secret for name in option.names}
    return {name: REDACTED if name.lower() in secrets else value for name, value in options.items()}


def _check_parser(
    source: SourceDescriptor,
    options: Mapping[str, str],
    given: Mapping[str, str],
    columns: tuple[Column, ...],
) -> tuple[dict[str, str], list[Fault]]:
    if not source.parsers:
        return {}, [
            Fault("PARSER", name.lower(), f"a {source.name} source makes rows itself and takes no parser")
            for name in given
        ]
    named = next((value for name, value in given.items() if name.lower() in ("type", "format")), None)
    parser: ParserDescriptor | None
    if named is None:
        parser = parser_of_path(options.get("file_path", "")) or PARSERS.get(source.default_parser or "")
        if parser is None:
            known = {name for p in source.parsers for name in _parser_names(PARSERS[p])}
            return {}, [
                Fault("PARSER", "type", f"a {source.name} source needs a parser: {one_of(source.parsers)}"),
                *(
                    Fault("PARSER", name.lower(), f"no parser has such an option{_of_source(source, name)}")
                    for name in given
                    if name.lower() not in known
                ),
            ]
    else:
        parser = PARSERS.get(named.upper())
        if parser is None or parser.name not in source.parsers:
            suggestion = did_you_mean(named, source.parsers) or f"expected {one_of(source.parsers)}"
            return {}, [Fault("PARSER", "type", f"a {source.name} source has no parser `{named[:40]}`: {suggestion}")]
    kind = Option("type", OptionType.CHOICE, "the parser", synonyms=("format",), choices=(parser.name,))
    declared = (kind, *parser.options_for(source.records))
    of_source = {name: "SOURCE" for option in source.options for name in option.names}
    normal, faults = check_options(
        "PARSER", f"the {parser.name} parser of a {source.name} source", declared, given, of_source
    )
    normal["type"] = parser.name
    if source.name == "FILE" and options.get("follow") == "true" and parser.name in ("PARQUET", "ARROW"):
        faults.append(Fault("SOURCE", "follow", f"{parser.name} files cannot be followed while they grow"))
    if not parser.nested:
        faults += _nested_faults("PARSER", "type", columns)
    if parser.name == "CSV" and normal.get("field_delimiter") == normal.get("tuple_delimiter", ""):
        faults.append(Fault("PARSER", "field_delimiter", "it is the same as the TUPLE_DELIMITER"))
    return normal, faults


def _of_source(source: SourceDescriptor, name: str) -> str:
    known = any(name.lower() in option.names for option in source.options)
    return f": write SOURCE.{name.upper()}" if known else ""


def _nested_faults(scope: str, option: str, columns: tuple[Column, ...]) -> list[Fault]:
    nested = [f"{column.name} {column.type}" for column in columns if column.type.is_nested]
    if not nested:
        return []
    return [Fault(scope, option, f"CSV cannot carry {', '.join(nested[:5])}: use JSON")]


def _complete_generator(options: dict[str, str], columns: tuple[Column, ...]) -> list[Fault]:
    """Gives every column its maker, in `options`."""
    faults: list[Fault] = []
    by_name = {column.name.lower(): column for column in columns}
    for key in [key for key in options if key.startswith("field.")]:
        column = by_name.get(key.removeprefix("field."))
        if column is None:
            suggestion = did_you_mean(key.removeprefix("field."), [c.name for c in columns])
            faults.append(
                Fault("SOURCE", key, f"the source has no such column{': ' + suggestion if suggestion else ''}")
            )
        else:
            fault = maker_fault(options[key], column.type)
            if fault:
                faults.append(Fault("SOURCE", key, fault))
    for name, column in by_name.items():
        if f"field.{name}" not in options:
            maker = default_maker(column.type)
            if maker is None:
                faults.append(Fault("SOURCE", f"field.{name}", f"nothing can be made up for the type {column.type}"))
            else:
                options[f"field.{name}"] = maker
    return faults


def _raise_faults(faults: list[Fault]) -> None:
    if faults:
        raise HeadgateError(INVALID_CONFIG, "; ".join(str(fault) for fault in faults))

"""Types of sources, sinks and parsers: what they take, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import descriptors
from headgate_coordinator.catalog.descriptors import PARSERS, REDACTED, SINKS, SOURCES, Option, OptionType
from headgate_coordinator.catalog.descriptors.generator import MAKERS, default_maker, maker_fault
from headgate_coordinator.errors import INVALID_CONFIG, SINK_TYPE_UNKNOWN, SOURCE_TYPE_UNKNOWN
from headgate_coordinator.sql.parse.secrets import SECRET_NAMES
from headgate_coordinator.sql.types import TYPES, parse_type

FILE, TCP, GENERATOR = catalog.SOURCE_TYPE_FILE, catalog.SOURCE_TYPE_TCP, catalog.SOURCE_TYPE_GENERATOR
KAFKA, TOPIC = catalog.SOURCE_TYPE_KAFKA, catalog.SOURCE_TYPE_TOPIC
SASL = {
    "bootstrap_servers": "b:9092",
    "topic": "t",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
    "sasl_password": "hunter2",
}
# Enough to be accepted, for each type.
SOURCE_OPTIONS: dict[catalog.SourceType.ValueType, dict[str, str]] = {
    FILE: {"file_path": "a.csv"},
    TCP: {"socket_host": "h", "socket_port": "1"},
    GENERATOR: {},
    KAFKA: {"bootstrap_servers": "b:9092", "topic": "t"},
    TOPIC: {"topic": "t"},
}
SINK_OPTIONS: dict[catalog.SinkType.ValueType, dict[str, str]] = {
    catalog.SINK_TYPE_FILE: {"file_path": "a.csv"},
    catalog.SINK_TYPE_PRINT: {},
    catalog.SINK_TYPE_KAFKA: {"bootstrap_servers": "b:9092", "topic": "t"},
    catalog.SINK_TYPE_TOPIC: {"topic": "t"},
    catalog.SINK_TYPE_VOID: {},
}


def schema(**columns: str) -> catalog.Schema:
    return catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in columns.items()])


def source_faults(
    type_: catalog.SourceType.ValueType,
    options: Mapping[str, str],
    parser: Mapping[str, str] | None = None,
    columns: catalog.Schema | None = None,
) -> list[str]:
    return [str(fault) for fault in descriptors.check_source(type_, options, parser or {}, columns)[1]]


def test_every_type_of_the_api_has_a_descriptor() -> None:
    # What agents say of themselves has no source that could be created, and rows of temporary queries no sink.
    assert set(SOURCES) == set(catalog.SourceType.values()) - {0, catalog.SOURCE_TYPE_AGENT}
    assert set(SINKS) == set(catalog.SinkType.values()) - {0, catalog.SINK_TYPE_RESULT}
    assert set(SOURCE_OPTIONS) == set(SOURCES) and set(SINK_OPTIONS) == set(SINKS)
    for descriptor in SOURCES.values():
        assert catalog.SourceType.Name(descriptor.type) == f"SOURCE_TYPE_{descriptor.name}"
        assert set(descriptor.parsers) <= set(PARSERS)
    for sink in SINKS.values():
        assert catalog.SinkType.Name(sink.type) == f"SINK_TYPE_{sink.name}"


def option_lists() -> list[tuple[str, tuple[Option, ...]]]:
    return [
        *((f"source {d.name}", d.options) for d in SOURCES.values()),
        *((f"sink {d.name}", d.options) for d in SINKS.values()),
        *((f"parser {p.name}", p.options_for(records=False)) for p in PARSERS.values()),
    ]


@pytest.mark.parametrize(("whose", "options"), option_lists(), ids=[name for name, _ in option_lists()])
def test_options_are_declared_soundly(whose: str, options: tuple[Option, ...]) -> None:
    names = [name for option in options for name in option.names]
    assert len(names) == len(set(names)) and all(name == name.lower() for name in names)
    for option in options:
        assert option.meaning and not option.meaning.endswith(".")
        assert not (option.required and option.default is not None)
        assert option.default is None or option.normal(option.default) == option.default
        assert bool(option.choices) == (option.type is OptionType.CHOICE)
        assert option.secret == option.name.endswith("password")


def test_every_secret_option_is_hidden_in_excerpts() -> None:
    for _, options in option_lists():
        for option in options:
            assert not option.secret or all(name.rsplit(".", 1)[-1] in SECRET_NAMES for name in option.names)


@pytest.mark.parametrize("type_", list(SOURCES), ids=catalog.SourceType.Name)
def test_normal_form_of_a_source_is_stable(type_: catalog.SourceType.ValueType) -> None:
    columns = schema(a="INT32", b="VARCHAR", c="TIMESTAMP")
    valid = descriptors.validate_source(type_, SOURCE_OPTIONS[type_], {}, columns)
    again = descriptors.validate_source(type_, valid.options, valid.parser_options, columns)
    assert again == valid
    for option in SOURCES[type_].options:
        if option.default is not None:
            assert valid.options[option.name] == option.default


@pytest.mark.parametrize("type_", list(SINKS), ids=catalog.SinkType.Name)
def test_normal_form_of_a_sink_is_stable(type_: catalog.SinkType.ValueType) -> None:
    columns = schema(a="INT32", b="VARCHAR")
    valid = descriptors.validate_sink(type_, SINK_OPTIONS[type_], columns)
    assert descriptors.validate_sink(type_, valid, columns) == valid


def test_names_of_the_reference_document_are_taken() -> None:
    valid = descriptors.validate_source(
        TCP,
        {"SOCKET_HOST": "localhost", "SOCKET_PORT": "50501"},
        {"TYPE": "CSV", "TUPLE_DELIMITER": "\n", "FIELD_DELIMITER": ","},
    )
    assert valid.options["socket_host"] == "localhost" and valid.options["socket_port"] == "50501"
    assert valid.parser_options["type"] == "CSV" and valid.parser_options["tuple_delimiter"] == "\n"
    sink = descriptors.validate_sink(
        catalog.SINK_TYPE_FILE, {"FILE_PATH": "results.csv", "INPUT_FORMAT": "CSV", "APPEND": "false"}
    )
    assert (sink["file_path"], sink["input_format"], sink["append"]) == ("results.csv", "CSV", "false")


def test_values_become_normal() -> None:
    valid = descriptors.validate_source(
        KAFKA, {"BROKERS": "b:9092", "topic": "t", "security.protocol": "ssl", "start": "1970-01-01T00:00:01Z"}, {}
    )
    assert valid.options["bootstrap_servers"] == "b:9092"
    assert valid.options["security_protocol"] == "SSL"
    assert valid.options["start"] == "1000000"
    tcp = descriptors.validate_source(TCP, {"host": "h", "port": "007", "connect_timeout": "1500 ms"}, {})
    assert tcp.options["socket_port"] == "7" and tcp.options["connect_timeout"] == "1500 ms"


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(HeadgateError) as refused:
        descriptors.validate_source(
            TCP, {"socket_hsot": "x", "socket_port": "0", "reconnect": "maybe"}, {"type": "CSV", "quot": "x"}
        )
    assert refused.value.reason is INVALID_CONFIG
    for part in (
        "SOURCE.SOCKET_HSOT: a TCP source has no such option: did you mean `socket_host`?",
        "SOURCE.SOCKET_PORT: it is from 1 to 65535, not 0",
        "SOURCE.RECONNECT: expected true or false, not `maybe`",
        "SOURCE.SOCKET_HOST: a TCP source needs it",
        "PARSER.QUOT: the CSV parser of a TCP source has no such option: did you mean `quote`?",
    ):
        assert part in refused.value.message


def test_parser_is_known_by_the_name_of_a_file() -> None:
    for path, parser in (("a.csv", "CSV"), ("A.JSONL", "JSON"), ("x/*.parquet", "PARQUET"), ("b.arrow", "ARROW")):
        assert descriptors.validate_source(FILE, {"file_path": path}, {}).parser_options["type"] == parser
    assert source_faults(FILE, {"file_path": "a.dat"}) == [
        "PARSER.TYPE: a FILE source needs a parser: CSV, JSON, PARQUET or ARROW"
    ]
    assert descriptors.validate_sink(catalog.SINK_TYPE_FILE, {"file_path": "a.json"})["input_format"] == "JSON"
    assert descriptors.validate_sink(catalog.SINK_TYPE_FILE, {"file_path": "a.parquet"})["input_format"] == "CSV"


def test_csv_carries_no_nested_columns() -> None:
    nested = schema(a="INT32", b="ARRAY<INT32>")
    assert source_faults(FILE, {"file_path": "a.csv"}, {}, nested) == [
        "PARSER.TYPE: CSV cannot carry b ARRAY<INT32>: use JSON"
    ]
    assert source_faults(FILE, {"file_path": "a.json"}, {}, nested) == []
    _, faults = descriptors.check_sink(catalog.SINK_TYPE_PRINT, {}, nested)
    assert [fault.option for fault in faults] == ["input_format"]
    assert descriptors.check_sink(catalog.SINK_TYPE_PRINT, {"input_format": "JSON"}, nested)[1] == []


def test_records_need_no_delimiter() -> None:
    assert source_faults(TOPIC, {"topic": "t"}, {"tuple_delimiter": "\n"})
    assert source_faults(TOPIC, {"topic": "t"}, {"type": "CSV", "header": "true"})
    assert not source_faults(TOPIC, {"topic": "t"}, {"type": "CSV", "field_delimiter": ";"})


def test_options_that_have_no_effect_are_refused() -> None:
    assert source_faults(FILE, {"file_path": "a.csv", "poll_interval": "5 s"})
    assert not source_faults(FILE, {"file_path": "a.csv", "poll_interval": "5 s", "follow": "true"})
    assert source_faults(FILE, {"file_path": "a.parquet", "follow": "true"})
    assert source_faults(KAFKA, {"bootstrap_servers": "b:1", "topic": "t", "ssl_ca_location": "ca.pem"})
    assert source_faults(KAFKA, {"bootstrap_servers": "b:1", "topic": "t", "sasl_username": "u"})


def test_sasl_is_all_or_nothing() -> None:
    assert source_faults(KAFKA, SASL) == []
    for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
        partial = {key: value for key, value in SASL.items() if key != name}
        assert source_faults(KAFKA, partial) == [f"SOURCE.{name.upper()}: security_protocol SASL_SSL needs it"]


def test_a_certificate_comes_with_its_key() -> None:
    tls = {"bootstrap_servers": "b:1", "topic": "t", "security_protocol": "SSL"}
    pair = {"ssl_certificate_location": "c.pem", "ssl_key_location": "k.pem"}
    assert source_faults(KAFKA, {**tls, **pair, "ssl_key_password": "p"}) == []
    for name, other in (tuple(pair), tuple(pair)[::-1]):
        faults = source_faults(KAFKA, {**tls, name: "x.pem"})
        assert faults == [f"SOURCE.{other.upper()}: {name} needs it"]
    assert source_faults(KAFKA, {**tls, "ssl_key_password": "p"})


def test_secrets_are_redacted_under_every_name() -> None:
    assert descriptors.redact_source(KAFKA, SASL)["sasl_password"] == REDACTED
    assert descriptors.redact_sink(catalog.SINK_TYPE_KAFKA, {"SASL.Password": "hunter2", "topic": "t"}) == {
        "SASL.Password": REDACTED,
        "topic": "t",
    }
    assert source_faults(KAFKA, {**SASL, "sasl_password": REDACTED}) == [
        f"SOURCE.SASL_PASSWORD: {REDACTED} stands for the secret in answers; give the secret itself"
    ]


def test_faults_never_show_a_secret() -> None:
    for value in ("hunter2\0", "hunter2" * 1_000):
        assert "hunter2" not in "".join(source_faults(KAFKA, {**SASL, "sasl_password": value}))


@pytest.mark.parametrize(
    ("type_", "options", "bounded"),
    [
        (FILE, {"file_path": "a.csv"}, True),
        (FILE, {"file_path": "a.csv", "follow": "true"}, False),
        (TCP, {"host": "h", "port": "1"}, False),
        (TCP, {"host": "h", "port": "1", "reconnect": "false"}, True),
        (GENERATOR, {}, False),
        (GENERATOR, {"rows": "10"}, True),
        (KAFKA, {"bootstrap": "b:1", "topic": "t"}, False),
        (TOPIC, {"topic": "t"}, False),
    ],
)
def test_which_sources_end_by_themselves(
    type_: catalog.SourceType.ValueType, options: dict[str, str], bounded: bool
) -> None:
    valid = descriptors.validate_source(type_, options, {})
    assert descriptors.is_bounded(type_, valid.options) is bounded


def test_what_makes_a_physical_source_unique() -> None:
    assert descriptors.source_locus(FILE, {"file_path": "a"}, "agent-uid") == "agent-uid"
    kafka = descriptors.validate_source(KAFKA, {"bootstrap": "b:1", "topic": "t"}, {}).options
    assert descriptors.source_locus(KAFKA, kafka, "") == "b:1/t"
    assert descriptors.source_locus(TOPIC, {"topic": "t"}, "") == "t"
    assert {d.name for d in SOURCES.values() if d.node_local} == {"FILE", "TCP", "GENERATOR"}
    assert {d.name for d in SINKS.values() if d.node_local} == {"FILE", "PRINT"}


def test_which_sinks_take_updates() -> None:
    assert descriptors.takes_updates(catalog.SINK_TYPE_PRINT, {})
    assert descriptors.takes_updates(catalog.SINK_TYPE_VOID, {})
    assert not descriptors.takes_updates(catalog.SINK_TYPE_FILE, {"file_path": "a"})
    assert not descriptors.takes_updates(catalog.SINK_TYPE_TOPIC, {"topic": "t"})
    assert descriptors.takes_updates(catalog.SINK_TYPE_TOPIC, {"topic": "t", "key_column": "a"})


def test_key_of_a_sink_is_one_of_its_columns() -> None:
    columns = schema(Car="INT64")
    valid = descriptors.validate_sink(catalog.SINK_TYPE_TOPIC, {"topic": "t", "key": "CAR"}, columns)
    assert valid["key_column"] == "Car"
    _, faults = descriptors.check_sink(catalog.SINK_TYPE_TOPIC, {"topic": "t", "key": "Cat"}, columns)
    assert [str(fault) for fault in faults] == ["SINK.KEY_COLUMN: the sink has no such column: did you mean `Car`?"]


def test_unknown_types_are_refused() -> None:
    with pytest.raises(HeadgateError) as refused:
        descriptors.validate_source(catalog.SOURCE_TYPE_UNSPECIFIED, {}, {})
    assert refused.value.reason is SOURCE_TYPE_UNKNOWN
    with pytest.raises(HeadgateError) as refused:
        descriptors.validate_sink(catalog.SINK_TYPE_UNSPECIFIED, {})
    assert refused.value.reason is SINK_TYPE_UNKNOWN
    assert descriptors.source_type("fIlE") == FILE and descriptors.source_type("FILES") is None
    assert descriptors.sink_type("void") == catalog.SINK_TYPE_VOID and descriptors.sink_type("") is None


def test_generator_has_a_maker_for_every_column() -> None:
    columns = schema(a="INT8", b="FLOAT64", C="CHAR(3)", d="TIMESTAMP", e="BOOL", f="DECIMAL(3,2)", g="UINT64")
    options = descriptors.validate_source(GENERATOR, {"FIELD.c": "choice('x', 'y')"}, {}, columns).options
    assert options["field.a"] == "uniform(0, 127)" and options["field.c"] == "choice('x', 'y')"
    for field in columns.fields:
        assert maker_fault(options[f"field.{field.name.lower()}"], parse_type(field.type)) == ""


def test_generator_faults() -> None:
    columns = schema(speed="FLOAT32", tags="ARRAY<INT32>")
    assert source_faults(GENERATOR, {"field.sped": "uniform(0, 1)", "field.speed": "text(4)"}, {}, columns) == [
        "SOURCE.FIELD.SPED: the source has no such column: did you mean `speed`?",
        "SOURCE.FIELD.SPEED: text makes no values of type FLOAT32",
        "SOURCE.FIELD.TAGS: nothing can be made up for the type ARRAY<INT32>",
    ]
    assert source_faults(GENERATOR, {"rate": "0"}) and source_faults(GENERATOR, {"rate": "nan"})
    assert source_faults(GENERATOR, {"field": "uniform(0, 1)"})


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in ("ARRAY", "MAP", "STRUCT", "BINARY")])
def test_every_scalar_type_can_be_made_up(kind: str) -> None:
    type_ = parse_type(kind)
    maker = default_maker(type_)
    assert maker is not None and maker_fault(maker, type_) == ""


@pytest.mark.parametrize(
    "text",
    ["", "uniform", "uniform()", "uniform(1)", "uniform(2, 1)", "uniform(a, b)", "sequence(1, 2, 3)", "choice()",
     "text(0)", "text(-1)", "text(1.5)", "chance(2)", "nosuch(1)", "uniform(0, 1) x", "choice('a)", "now(1)",
     "uniform(1" + "0" * 100_000 + ", 1)", "choice(" + "(" * 4_000, "choice(" + "'," * 4_000 + ")"],
)  # fmt: skip
def test_bad_makers_are_refused(text: str) -> None:
    assert maker_fault(text) != ""


@pytest.mark.parametrize(
    "text", ["sequence()", "sequence(5)", "sequence(-5, 2)", "uniform(0, 1.5e3)", "choice('it''s', b, 3)", "now()",
             "constant('a, b')", "clock('2026-01-01T00:00:00Z', '1s')", "CHANCE( 0.5 )"]
)  # fmt: skip
def test_good_makers_are_taken(text: str) -> None:
    assert maker_fault(text) == ""


def test_every_maker_is_for_some_type() -> None:
    for maker in MAKERS.values():
        assert maker.kinds and maker.least <= maker.most


@settings(deadline=None)
@given(
    st.sampled_from(list(SOURCES)),
    st.dictionaries(
        st.sampled_from([n for _, o in option_lists() for x in o for n in x.names]) | st.text(max_size=8),
        st.text(max_size=12),
        max_size=6,
    ),
    st.dictionaries(
        st.sampled_from(["type", "field_delimiter", "header"]) | st.text(max_size=8), st.text(max_size=8), max_size=4
    ),
)
@pytest.mark.slow
def test_any_options_are_normal_or_refused(
    type_: catalog.SourceType.ValueType, options: dict[str, str], parser: dict[str, str]
) -> None:
    valid, faults = descriptors.check_source(type_, options, parser, schema(a="INT32"))
    if faults:
        with pytest.raises(HeadgateError) as refused:
            descriptors.validate_source(type_, options, parser, schema(a="INT32"))
        assert refused.value.reason is INVALID_CONFIG
    else:
        assert descriptors.validate_source(type_, valid.options, valid.parser_options, schema(a="INT32")) == valid

"""`CREATE ...` of everything but queries: the statement as a request of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message
from sqlglot.tokenizer_core import TokenType

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.catalog import descriptors
from headgate_coordinator.catalog.descriptors.brokers import missing_brokers
from headgate_coordinator.catalog.log import settings
from headgate_coordinator.errors import (
    EMPTY_SCHEMA,
    INVALID_CONFIG,
    INVALID_SCHEMA,
    SINK_TYPE_UNKNOWN,
    SOURCE_TYPE_UNKNOWN,
    UNSUPPORTED,
)
from headgate_coordinator.sql.errors import Problems, StatementError, Step, did_you_mean, one_of, quoted
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.options import Option, refuse_faults, take_options, take_value
from headgate_coordinator.sql.parse.query import take_query
from headgate_coordinator.sql.statements import RequestStatement, Statement
from headgate_coordinator.sql.types import TypeSyntaxError, parse_type
from headgate_coordinator.sql.types.schema import column_name_fault

T = TypeVar("T")

_KINDS = ("LOGICAL SOURCE", "PHYSICAL SOURCE", "SINK", "QUERY", "AGENT", "NETWORK LINK", "TOPIC")
# What other systems call it.
_ELSEWHERE = {
    "SOURCE": "write CREATE LOGICAL SOURCE, then CREATE PHYSICAL SOURCE for each place that feeds it",
    "TABLE": "write CREATE LOGICAL SOURCE for what is read, CREATE SINK for what is written",
    "STREAM": "write CREATE LOGICAL SOURCE",
    "VIEW": "write CREATE QUERY name AS SELECT ... INTO sink",
    "MATERIALIZED": "write CREATE QUERY name AS SELECT ... INTO sink",
    "OR": "drop it, then create it, in one bundle",
    "FUNCTION": "there are no functions of one's own",
    "LINK": "write CREATE NETWORK LINK FROM a TO b",
    "CONNECTOR": "write CREATE PHYSICAL SOURCE or CREATE SINK",
}
_ROLES = {"LOG": catalog.AGENT_ROLE_LOG, "FRAGMENTS": catalog.AGENT_ROLE_FRAGMENTS}


def take_create(cursor: Cursor, start: int) -> Statement:
    """The statement after CREATE."""
    if cursor.accept("LOGICAL", "SOURCE"):
        return _logical_source(cursor, start)
    if cursor.accept("PHYSICAL", "SOURCE"):
        return _physical_source(cursor, start)
    if cursor.accept("SINK"):
        return _sink(cursor, start)
    if cursor.accept("QUERY"):
        if_not_exists = _if_not_exists(cursor)
        name = cursor.take_name("query")
        if cursor.at("WITH", "("):
            raise cursor.refusal("WITH (...) of a query comes at its end")
        cursor.expect("AS", where="after the name of the query")
        return take_query(cursor, start, name=name, if_not_exists=if_not_exists)
    if cursor.accept("AGENT") or cursor.accept("WORKER"):
        return _agent(cursor, start)
    if cursor.accept("NETWORK", "LINK"):
        return _network_link(cursor, start)
    if cursor.accept("TOPIC"):
        return _topic(cursor, start)
    elsewhere = _ELSEWHERE.get(cursor.word())
    if elsewhere:
        what = {"OR": "OR REPLACE", "MATERIALIZED": "MATERIALIZED VIEW"}.get(cursor.word(), cursor.word())
        raise cursor.refusal(f"there is no CREATE {what}", suggestion=elsewhere, reason=UNSUPPORTED)
    raise cursor.refusal(
        f"expected what to create, found {cursor.found()}",
        suggestion=did_you_mean(f"{cursor.word()} {cursor.word(1)}", _KINDS)
        or did_you_mean(cursor.word(), _KINDS)
        or one_of(_KINDS),
    )


def _if_not_exists(cursor: Cursor) -> bool:
    if cursor.accept("IF"):
        cursor.expect("NOT", "EXISTS")
        return True
    return False


def _made(cursor: Cursor, start: int, verb: str, request: Message, if_not_exists: bool) -> RequestStatement:
    return RequestStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb=verb,
        request=request,
        if_not_exists=if_not_exists,
    )


def _logical_source(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    name = cursor.take_name("logical source")
    schema = take_schema(cursor)
    if cursor.at("TYPE") or cursor.at("SET") or cursor.at("WITH"):
        raise cursor.refusal(
            "a logical source has columns only", suggestion="put the rest into CREATE PHYSICAL SOURCE FOR " + name
        )
    cursor.expect_end()
    request = catalog.CreateLogicalSourceRequest(name=name, schema=schema)
    return _made(cursor, start, "CREATE LOGICAL SOURCE", request, if_not_exists)


def _physical_source(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    name = "" if cursor.at("FOR") else cursor.take_name("physical source")
    cursor.expect("FOR", where="and the logical source that it feeds")
    logical = cursor.take_name("logical source")
    type_name, type_offset, agent, options = _clauses(cursor, "source")
    type_ = descriptors.source_type(type_name)
    if type_ is None:
        known = [descriptor.name for descriptor in descriptors.SOURCES.values()]
        raise cursor.refusal(
            f"there is no type of source {quoted(type_name)}",
            type_offset,
            did_you_mean(type_name, known) or f"there are {one_of(known)}",
            SOURCE_TYPE_UNKNOWN,
        )
    own, of_parser = _by_scope(cursor, options, ("SOURCE", "PARSER"))
    if type_ == catalog.SOURCE_TYPE_KAFKA:
        own |= missing_brokers(own, cursor.limits.kafka_brokers)
    _, faults = descriptors.check_source(type_, own, of_parser)
    refuse_faults(cursor, faults, options, type_offset)
    request = catalog.CreatePhysicalSourceRequest(
        name=name, logical_source=logical, agent=agent, type=type_, options=own, parser_options=of_parser
    )
    return _made(cursor, start, "CREATE PHYSICAL SOURCE", request, if_not_exists)


def _sink(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    name = cursor.take_name("sink")
    schema = take_schema(cursor)
    type_name, type_offset, agent, options = _clauses(cursor, "sink")
    type_ = descriptors.sink_type(type_name)
    if type_ is None:
        known = [descriptor.name for descriptor in descriptors.SINKS.values()]
        raise cursor.refusal(
            f"there is no type of sink {quoted(type_name)}",
            type_offset,
            did_you_mean(type_name, known) or f"there are {one_of(known)}",
            SINK_TYPE_UNKNOWN,
        )
    own, _ = _by_scope(cursor, options, ("SINK",))
    if type_ == catalog.SINK_TYPE_KAFKA:
        own |= missing_brokers(own, cursor.limits.kafka_brokers)
    _, faults = descriptors.check_sink(type_, own, schema)
    refuse_faults(cursor, faults, options, type_offset)
    request = catalog.CreateSinkRequest(name=name, schema=schema, agent=agent, type=type_, options=own)
    return _made(cursor, start, "CREATE SINK", request, if_not_exists)


def _clauses(cursor: Cursor, what: str) -> tuple[str, int, str, list[Option]]:
    """`TYPE name`, `ON agent` and `SET(...)`, in any order, to the end of the statement."""
    type_name, type_offset, agent, options = "", cursor.offset, "", list[Option]()
    seen: set[str] = set()
    while not cursor.done:
        clause = cursor.word()
        if clause in ("TYPE", "ON", "SET", "WITH") and clause in seen:
            raise cursor.refusal(f"{clause} comes twice")
        seen.add(clause)
        if cursor.accept("TYPE"):
            type_offset = cursor.offset
            token = cursor.current
            if token is None or token.token_type is TokenType.NUMBER:
                raise cursor.expected(f"the type of the {what}")
            cursor.index += 1
            type_name = token.text
        elif cursor.accept("ON"):
            if not cursor.accept("AGENT"):
                cursor.accept("WORKER")
            agent = cursor.take_name("agent")
        elif cursor.at("SET", "(") or cursor.at("WITH", "("):
            options += take_options(cursor)
        else:
            raise cursor.expected("TYPE, ON or SET(...)", ("TYPE", "ON", "SET"))
    if not type_name:
        raise cursor.expected(f"TYPE and the type of the {what}")
    return type_name, type_offset, agent, options


def _by_scope(cursor: Cursor, options: list[Option], scopes: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the thing itself, and those of its parser. One without a scope is of the thing itself."""
    own: dict[str, str] = {}
    of_parser: dict[str, str] = {}
    for option in options:
        if option.scope and option.scope not in scopes:
            raise cursor.refusal(f"{option.scope} has no place here", option.offset, f"write {one_of(scopes)}")
        target = of_parser if option.scope == "PARSER" else own
        if option.key in target:
            raise cursor.refusal(f"the option {quoted(option.key)} comes twice", option.offset)
        target[option.key] = option.value
    return own, of_parser


def take_schema(cursor: Cursor) -> catalog.Schema:
    """`(name type [NOT NULL], ...)`. Problems of several columns are reported together."""
    problems = Problems(cursor.source)
    schema = catalog.Schema()
    seen: set[str] = set()
    opening = cursor.offset
    cursor.expect("(", where="and the columns")
    if cursor.at(")"):
        raise cursor.refusal("a schema has at least one column", opening, reason=EMPTY_SCHEMA)
    while True:
        try:
            _take_column(cursor, schema, seen, problems)
        except StatementError as error:
            problems.extend(error.problems)
            problems.raise_if_any()
        if len(schema.fields) > cursor.limits.schema.max_columns:
            raise cursor.refusal(
                f"a schema has at most {cursor.limits.schema.max_columns:,} columns", opening, reason=INVALID_SCHEMA
            )
        if not cursor.accept(","):
            cursor.expect(")", where="or `,` after a column")
            break
    problems.raise_if_any()
    return schema


def _take_column(cursor: Cursor, schema: catalog.Schema, seen: set[str], problems: Problems) -> None:
    token = cursor.current
    if (
        token is None
        or (token.token_type is not TokenType.IDENTIFIER and not (token.text[:1].isalpha() or token.text[:1] == "_"))
        or token.token_type is TokenType.STRING
    ):
        raise cursor.expected("the name of a column")
    cursor.index += 1
    name = token.text
    fault = column_name_fault(name)
    if not fault and name.lower() in seen:
        fault = f"the column {quoted(name)} comes twice (case does not count)"
    if fault:
        problems.add(Step.PARSE, token.start, fault, reason=INVALID_SCHEMA)
    seen.add(name.lower())
    type_start = cursor.offset
    type_end = _skip_type(cursor)
    spelled = ""
    try:
        spelled = str(parse_type(cursor.text_between(type_start, type_end)))
    except TypeSyntaxError as error:
        problems.add(Step.PARSE, type_start + error.offset, error.message, error.suggestion, INVALID_SCHEMA)
    not_null = cursor.accept("NOT", "NULL")
    if not not_null:
        cursor.accept("NULL")
    if cursor.word() not in (",", ")"):
        constraints = {"PRIMARY KEY": "keys", "DEFAULT": "defaults", "UNIQUE": "unique columns", "CHECK": "checks"}
        if cursor.word() in constraints:
            raise cursor.refusal(f"a column has no {constraints[cursor.word()]}", reason=UNSUPPORTED)
        raise cursor.expected("`,` or `)` after the column", ("NOT", "NULL"))
    schema.fields.add(name=name, type=spelled, not_null=not_null)


def _skip_type(cursor: Cursor) -> int:
    """Steps over the tokens of a type; answers where its text ends."""
    depth = 0
    end = cursor.offset
    while (token := cursor.current) is not None:
        word = cursor.word()
        if depth == 0 and word in (",", ")", "NOT", "NULL", "PRIMARY KEY", "DEFAULT", "UNIQUE", "CHECK", "CONSTRAINT"):
            break
        depth += (word in ("(", "<", "[")) - (word in (")", ">", "]"))
        end = token.end + 1
        cursor.index += 1
        if depth < 0:
            break
    return end


def _agent(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    request = catalog.CreateAgentRequest(name=cursor.take_name("agent"))
    seen: set[str] = set()
    while not cursor.done:
        clause = cursor.take_word_of(
            ("AT", "ADDRESS", "SLOTS", "CAPACITY", "ZONE", "GROUP", "PEERS", "ROLES", "LABELS", "WITHOUT"),
            "a clause of CREATE AGENT",
        )
        clause = {"ADDRESS": "AT", "CAPACITY": "SLOTS"}.get(clause, clause)
        if clause in seen:
            cursor.index -= 1
            raise cursor.refusal(f"{clause} comes twice")
        seen.add(clause)
        match clause:
            case "AT":
                request.address = cursor.take_string("the agent's host:port")
            case "SLOTS":
                request.slots = cursor.take_integer("the number of slots", 0, 100_000)
            case "ZONE":
                request.zone = cursor.take_string("the zone")
            case "GROUP":
                request.group = cursor.take_string("the group")
            case "PEERS":
                request.peers.extend(_list(cursor, lambda: cursor.take_name("agent")))
            case "ROLES":
                request.roles.extend(_list(cursor, lambda: _ROLES[cursor.take_word_of(_ROLES, "a role")]))
            case "LABELS":
                for key, value in _list(cursor, lambda: _label(cursor)):
                    request.labels[key] = value
            case "WITHOUT":
                cursor.expect("ENGINE")
                request.without_engine = True
    if "AT" not in seen:
        raise cursor.expected("AT and the agent's 'host:port'")
    return _made(cursor, start, "CREATE AGENT", request, if_not_exists)


def _list(cursor: Cursor, take: Callable[[], T]) -> list[T]:
    """`(a, b, ...)`; the brackets may be left out around one."""
    if not cursor.accept("("):
        return [take()]
    items = [take()]
    while cursor.accept(","):
        items.append(take())
    cursor.expect(")", where="to close the list")
    return items


def _label(cursor: Cursor) -> tuple[str, str]:
    key = cursor.take_string("the label") if not cursor.word() else take_value(cursor)
    cursor.expect("=", where="between label and value")
    return key, take_value(cursor)


def _network_link(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    from_agent, to_agent = take_link(cursor)
    cursor.expect_end()
    request = catalog.CreateNetworkLinkRequest(from_agent=from_agent, to_agent=to_agent)
    return _made(cursor, start, "CREATE NETWORK LINK", request, if_not_exists)


def take_link(cursor: Cursor) -> tuple[str, str]:
    """`FROM a TO b`."""
    cursor.expect("FROM", where="and the sending agent")
    sending = cursor.take_name("sending agent")
    cursor.expect("TO", where="and the receiving agent")
    return sending, cursor.take_name("receiving agent")


def _topic(cursor: Cursor, start: int) -> RequestStatement:
    if_not_exists = _if_not_exists(cursor)
    name = cursor.take_topic()
    partitions = cursor.take_integer("the number of partitions", 1, 10_000) if cursor.accept("PARTITIONS") else 0
    group = cursor.take_string("the group of agents") if cursor.accept("GROUP") else ""
    options = take_options(cursor)
    for option in options:
        if option.scope:
            raise cursor.refusal(f"{option.scope} has no place here", option.offset)
    cursor.expect_end(("PARTITIONS", "GROUP", "WITH"))
    request = log.CreateTopicRequest(
        name=name, partitions=partitions, group=group, settings=_topic_settings(cursor, options)
    )
    return _made(cursor, start, "CREATE TOPIC", request, if_not_exists)


def _topic_settings(cursor: Cursor, options: list[Option]) -> log.TopicSettings | None:
    if not options:
        return None
    try:
        return settings.from_text({option.key: option.value for option in options})
    except settings.BadSetting as bad:
        at = next(option.offset for option in options if option.key == bad.key)
        raise cursor.refusal(bad.message, at, bad.suggestion, INVALID_CONFIG) from None

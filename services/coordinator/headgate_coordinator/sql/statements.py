"""What a text of statements means, one frozen value for each statement.

A statement that changes the catalog carries the request of the API itself, so that SQL and gRPC take one path from
there on. A query carries sqlglot's tree of its SELECT, in the form that `dialect` documents; every offset in that tree
points into `source`, the whole text that was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.message import Message
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.errors import SourceText


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Any statement: what was written, where it began in the text, and what it does in two or three words."""

    text: str
    source: SourceText
    offset: int
    verb: str

    @property
    def line(self) -> int:
        return self.source.position(self.offset)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.offset)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatement(Statement):
    """CREATE, ALTER, DROP and STOP of everything but CREATE QUERY: `request` is the API's own.

    `if_exists` is in the request too (`allow_missing`); `if_not_exists` is only here, as the API has no such field:
    ALREADY_EXISTS then means that nothing is to be done.
    """

    request: Message
    if_exists: bool = False
    if_not_exists: bool = False


class Delivery(StrEnum):
    """What a sink may see of a row after a crash."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """`WITH (...)` of a query. None means that it was not said."""

    mode: catalog.QueryMode.ValueType = catalog.QUERY_MODE_UNSPECIFIED
    # Time from creation within which the query must be RUNNING.
    deadline_us: int | None = None
    # "earliest", "latest", or microseconds since 1970 as digits: where topics are read from at the first start.
    start: str | None = None
    # A source silent for so long no longer holds back the others.
    idle_timeout_us: int | None = None
    delivery: Delivery | None = None
    # Allowed lateness where a window states none, and for joins within a time range.
    lateness_us: int | None = None
    # How the Kafka cluster is reached that the query's edges are on; None where they are in the log.
    kafka_edges: Mapping[str, str] | None = None
    # Where each option was written, for problems with it.
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatement(Statement):
    """`[CREATE QUERY name AS] SELECT ... [INTO sink] [WITH (...)]`.

    `select` is the tree without INTO and WITH, `select_text` its text. `sink` is None where the request names it.
    `shown_text` is the statement without the secrets among its options; empty where it has none.
    """

    name: str | None
    select: exp.Query
    select_text: str
    sink: str | None
    sink_offset: int | None
    options: QueryOptions
    if_not_exists: bool = False
    shown_text: str = ""
    # Its rows go to whoever asked for them, and to no sink.
    temporary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainStatement(Statement):
    """`EXPLAIN [(FORMAT TEXT | DOT)] query`."""

    query: QueryStatement
    format: catalog.ExplainFormat.ValueType = catalog.EXPLAIN_FORMAT_TEXT


class ShowKind(StrEnum):
    """What SHOW and DESCRIBE name."""

    AGENTS = "AGENTS"
    NETWORK_LINKS = "NETWORK LINKS"
    LOGICAL_SOURCES = "LOGICAL SOURCES"
    PHYSICAL_SOURCES = "PHYSICAL SOURCES"
    SINKS = "SINKS"
    QUERIES = "QUERIES"
    FRAGMENTS = "FRAGMENTS"
    TOPICS = "TOPICS"
    PARTITIONS = "PARTITIONS"
    TRANSFERS = "TRANSFERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStatement(Statement):
    """`SHOW kind [FOR name] [LIKE 'pattern'] [WHERE condition] [LIMIT n]`.

    `owner` is the logical source of physical sources, the query of fragments, or the topic of partitions and transfers.
    `where` goes to `conditions.compile`.
    """

    kind: ShowKind
    owner: str | None = None
    like: str | None = None
    where: exp.Expr | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeStatement(Statement):
    """`DESCRIBE [kind] name`. Without a kind, `name` is looked for among logical sources, sinks, queries, physical
    sources and agents, in this order."""

    name: str
    kind: ShowKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatement(Statement):
    """`WATCH SELECT columns FROM kind [WHERE condition]`. No columns means all."""

    kind: catalog.ResourceKind.ValueType
    columns: tuple[str, ...] = ()
    # Where each of the columns was written.
    column_offsets: tuple[int, ...] = ()
    where: exp.Expr | None = None

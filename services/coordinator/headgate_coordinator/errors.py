"""Every reason that the coordinator answers with. docs/errors.md is made from this table.

Where the reference documents name one condition twice, the other name is a synonym.
"""

from __future__ import annotations

from grpc import StatusCode

from headgate_common.errors import COMMON, ReasonTable

REASONS = ReasonTable(COMMON)
_r = REASONS.declare

# Names and values
INVALID_NAME = _r("INVALID_NAME", StatusCode.INVALID_ARGUMENT, "A name breaks the rule for names.")
INVALID_ADDRESS = _r("INVALID_ADDRESS", StatusCode.INVALID_ARGUMENT, "An address is not host:port.")
NAME_RESERVED = _r(
    "NAME_RESERVED",
    StatusCode.INVALID_ARGUMENT,
    "The name is that of a built-in source, which agents feed: it cannot be created, fed or dropped.",
    "docs/sql/built-in.md lists the built-in sources; choose another name for your own.",
)
EMPTY_SCHEMA = _r("EMPTY_SCHEMA", StatusCode.INVALID_ARGUMENT, "A schema has no columns.")
INVALID_SCHEMA = _r("INVALID_SCHEMA", StatusCode.INVALID_ARGUMENT, "A column has a bad name or type, or comes twice.")
INVALID_CONFIG = _r(
    "INVALID_CONFIG",
    StatusCode.INVALID_ARGUMENT,
    "An option of a source, parser, sink or topic is unknown, missing or has a bad value.",
    "docs/sql/options.md lists the options of each type, docs/sql/statements.md those of topics.",
)
INVALID_PAGE_TOKEN = _r(
    "INVALID_PAGE_TOKEN",
    StatusCode.INVALID_ARGUMENT,
    "A page token was not made by this call with these filters.",
    "Start again without a token.",
)
REQUEST_ID_CONFLICT = _r(
    "REQUEST_ID_CONFLICT",
    StatusCode.ABORTED,
    "The request_id was used before with another method or body.",
    "Use a new request_id.",
)
UID_MISMATCH = _r("UID_MISMATCH", StatusCode.ABORTED, "The resource of that name is not the one with that uid.")
SINK_CONFLICT = _r(
    "SINK_CONFLICT", StatusCode.INVALID_ARGUMENT, "The statement and the request name two different sinks."
)

# Things that exist, or do not
ALREADY_EXISTS = _r("ALREADY_EXISTS", StatusCode.ALREADY_EXISTS, "There is a resource of that kind and name.")
QUERY_NAME_LOCKED = _r(
    "QUERY_NAME_LOCKED",
    StatusCode.ALREADY_EXISTS,
    "A query of that name is being dropped; its name is free when all its fragments are gone.",
    "Wait for the drop to finish: the message says what it waits for.",
    ("NameLocked",),
)
AGENT_NOT_FOUND = _r(
    "AGENT_NOT_FOUND",
    StatusCode.NOT_FOUND,
    "There is no such agent.",
    synonyms=("WorkerDoesNotExistForPhysical", "WorkerDoesNotExistForSink", "WorkerNotFound"),
)
NETWORK_LINK_NOT_FOUND = _r("NETWORK_LINK_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such link.")
LOGICAL_SOURCE_NOT_FOUND = _r(
    "LOGICAL_SOURCE_NOT_FOUND",
    StatusCode.NOT_FOUND,
    "There is no such logical source.",
    synonyms=("LogicalSourceDoesNotExistForPhysical", "LogicalSourceNotFound"),
)
PHYSICAL_SOURCE_NOT_FOUND = _r(
    "PHYSICAL_SOURCE_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such physical source.", synonyms=("DoesNotExist",)
)
SINK_NOT_FOUND = _r(
    "SINK_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such sink.", synonyms=("SinkDoesNotExistForQuery",)
)
QUERY_NOT_FOUND = _r("QUERY_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such query.")
SOURCE_TYPE_UNKNOWN = _r(
    "SOURCE_TYPE_UNKNOWN",
    StatusCode.INVALID_ARGUMENT,
    "There is no such type of source.",
    synonyms=("SourceTypeDoesNotExist",),
)
SINK_TYPE_UNKNOWN = _r(
    "SINK_TYPE_UNKNOWN",
    StatusCode.INVALID_ARGUMENT,
    "There is no such type of sink.",
    synonyms=("SinkTypeDoesNotExist",),
)
AGENT_AMBIGUOUS = _r(
    "AGENT_AMBIGUOUS",
    StatusCode.INVALID_ARGUMENT,
    "No agent is named for a node-local source or sink, and none or several are eligible.",
    "Name one of the listed agents with ON, or in the field `agent`.",
)

# Things that are in use
LOGICAL_SOURCE_IN_USE = _r(
    "LOGICAL_SOURCE_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Physical sources feed this logical source.",
    "Drop the listed ones first.",
    ("ReferencedPhysicalSourceExists", "PhysicalSourcesExist"),
)
PHYSICAL_SOURCE_IN_USE = _r(
    "PHYSICAL_SOURCE_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Queries read this physical source, ended ones included.",
    "Drop the listed queries first.",
    ("ReferencedQueryExists", "ActiveQueriesExist"),
)
SINK_IN_USE = _r(
    "SINK_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Queries write to this sink, ended ones included.",
    "Drop the listed queries first.",
    ("ReferencedQueryExists", "ActiveQueriesExist"),
)
AGENT_IN_USE = _r(
    "AGENT_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Fragments, sources, sinks or links refer to this agent.",
    "Drop what is listed first, or use `force` for an agent that is gone for good.",
    ("ReferencedQueryExists", "ReferencedSourceExists", "ReferencedSinkExists", "WorkerBusy"),
)
LINK_IN_USE = _r(
    "LINK_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Queries send data along this link.",
    "Drop the listed queries first.",
)

# The log
TOPIC_NOT_FOUND = _r("TOPIC_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such topic.")
PARTITION_NOT_FOUND = _r(
    "PARTITION_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such partition, or no longer: its topic may be gone."
)
GROUP_NOT_FOUND = _r("GROUP_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such consumer group.")
TRANSFER_NOT_FOUND = _r(
    "TRANSFER_NOT_FOUND", StatusCode.NOT_FOUND, "There is no such transfer from or to the agent of the session."
)
TOPIC_IN_USE = _r(
    "TOPIC_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Sources, sinks or queries use this topic, ended queries included.",
    "Drop what is listed first.",
)
GROUP_IN_USE = _r(
    "GROUP_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "An agent leads this consumer group: it may have members.",
    "Stop its consumers and ask the agent that leads it, or wait until none does.",
)
TOPIC_LIMIT_EXCEEDED = _r(
    "TOPIC_LIMIT_EXCEEDED",
    StatusCode.FAILED_PRECONDITION,
    "There would be more topics or partitions than the configuration allows.",
    "Drop topics, ask for fewer partitions, or raise limits.topics, limits.partitions or limits.topic_partitions.",
)
GROUP_LIMIT_EXCEEDED = _r(
    "GROUP_LIMIT_EXCEEDED",
    StatusCode.FAILED_PRECONDITION,
    "There would be more consumer groups than the configuration allows.",
    "Delete groups that nobody uses, wait until they are forgotten (timings.group_memory), or raise limits.groups.",
)
AGENT_NOT_ELIGIBLE = _r(
    "AGENT_NOT_ELIGIBLE",
    StatusCode.FAILED_PRECONDITION,
    "The agent may not lead: it has not the role LOG, is of another group, or the topic belongs to another agent.",
)
WAITS_FOR_VOLUME = _r(
    "WAITS_FOR_VOLUME",
    StatusCode.FAILED_PRECONDITION,
    "Another volume may hold acknowledged records of the partition which no segment has.",
    "Start the agent with that volume, or accept the loss: headgate topics recover NAME --accept-loss.",
)
NO_VOLUME = _r(
    "NO_VOLUME",
    StatusCode.FAILED_PRECONDITION,
    "The agent registered without a volume id, so it cannot lead partitions of WAL topics.",
)
OFFSET_CONFLICT = _r(
    "OFFSET_CONFLICT",
    StatusCode.ABORTED,
    "A segment does not begin where its partition ends, or does not fit those that it replaces.",
    "Read the partition's segments again.",
)
STALE_RUN = _r(
    "STALE_RUN",
    StatusCode.ABORTED,
    "A later run of the fragment is the one that counts now, or this one has not opened the edge.",
)
OFFSET_OUT_OF_RANGE = _r(
    "OFFSET_OUT_OF_RANGE", StatusCode.OUT_OF_RANGE, "The offset is above what the partition has in segments."
)
STALE_GENERATION = _r(
    "STALE_GENERATION", StatusCode.ABORTED, "A later generation of the consumer group has stored offsets."
)
STALE_COMMIT = _r(
    "STALE_COMMIT",
    StatusCode.ABORTED,
    "A later commit of the consumer group's offsets was stored before this one came.",
)
LOSS_NOT_ACCEPTED = _r(
    "LOSS_NOT_ACCEPTED",
    StatusCode.FAILED_PRECONDITION,
    "Acknowledged records may be lost, and the request does not accept that; the message says how many at most.",
    "Start the agent with the volume, or set accept_loss.",
)
PARTITION_LED = _r(
    "PARTITION_LED", StatusCode.FAILED_PRECONDITION, "An agent leads the partition, so there is nothing to recover."
)

# Topology and membership
TOPOLOGY_CYCLE = _r(
    "TOPOLOGY_CYCLE",
    StatusCode.FAILED_PRECONDITION,
    "The links would form a cycle, and cycles are configured to be refused.",
    synonyms=("InvalidTopology",),
)
TOPOLOGY_DISCONNECTED = _r(
    "TOPOLOGY_DISCONNECTED",
    StatusCode.FAILED_PRECONDITION,
    "Links are declared, and an agent would have none.",
    "Give the agent `peers`, or apply agent and links in one bundle.",
    ("UnreachableNode",),
)
ADDRESS_MISMATCH = _r(
    "ADDRESS_MISMATCH", StatusCode.FAILED_PRECONDITION, "The agent of that name is known under another address."
)
AGENT_NAME_TAKEN = _r(
    "AGENT_NAME_TAKEN", StatusCode.ALREADY_EXISTS, "Another live process answers under this agent's name."
)
REPLACES_MISMATCH = _r(
    "REPLACES_MISMATCH",
    StatusCode.ABORTED,
    "Another process was the last to register under this agent's name, and the request does not name it.",
    "A process that takes its place says so: it registers again with `replaces`, the `incarnation` of the metadata.",
)
AGENT_DROPPED = _r(
    "AGENT_DROPPED",
    StatusCode.FAILED_PRECONDITION,
    "This process was declared gone, or its agent was dropped; it must stop everything and start anew.",
)
PROTOCOL_VERSION_UNSUPPORTED = _r(
    "PROTOCOL_VERSION_UNSUPPORTED", StatusCode.FAILED_PRECONDITION, "Agent and coordinator speak no common version."
)
SESSION_EXPIRED = _r(
    "SESSION_EXPIRED",
    StatusCode.FAILED_PRECONDITION,
    "The session has ended, and with it every grant on it.",
    "Register again.",
)
GRANT_CONFLICT = _r(
    "GRANT_CONFLICT", StatusCode.ABORTED, "Another session holds the grant.", synonyms=("ConflictError",)
)
STALE_EPOCH = _r("STALE_EPOCH", StatusCode.ABORTED, "The grant has passed on: its epoch is higher now.")
NOT_LEADER = _r(
    "NOT_LEADER",
    StatusCode.UNAVAILABLE,
    "This coordinator does not lead.",
    "Call the one named in the metadata `leader`.",
)

# The catalog itself
CATALOG_UNCERTAIN = _r(
    "CATALOG_UNCERTAIN",
    StatusCode.UNAVAILABLE,
    "The database failed during a commit: the change may or may not have happened.",
    "Try again with the same request_id.",
)
CATALOG_UNAVAILABLE = _r(
    "CATALOG_UNAVAILABLE", StatusCode.UNAVAILABLE, "The database cannot be reached; nothing was done.", "Try again."
)
CATALOG_TOO_NEW = _r(
    "CATALOG_TOO_NEW",
    StatusCode.FAILED_PRECONDITION,
    "The database was made by a newer coordinator; this one refuses to start on it.",
    "Start the newer version, or restore a backup.",
)
CATALOG_MISMATCH = _r(
    "CATALOG_MISMATCH",
    StatusCode.FAILED_PRECONDITION,
    "The agent's data folder or object store belongs to another catalog than the coordinator's; nothing was changed.",
    "Correct the agent's coordinator, data or log.object_store. To give the data to this catalog, which deletes what "
    "it does not know, start the agent once with --adopt-catalog.",
)
REVISION_COMPACTED = _r(
    "REVISION_COMPACTED",
    StatusCode.OUT_OF_RANGE,
    "The history after that revision is gone.",
    "Watch again without from_revision.",
)
REVISION_IN_FUTURE = _r(
    "REVISION_IN_FUTURE", StatusCode.OUT_OF_RANGE, "That revision has not happened in this catalog."
)
WATCHER_TOO_SLOW = _r(
    "WATCHER_TOO_SLOW",
    StatusCode.ABORTED,
    "The watcher read more slowly than changes came.",
    "Watch again from the last revision seen.",
)

# Statements and plans
PARSE_ERROR = _r(
    "PARSE_ERROR",
    StatusCode.INVALID_ARGUMENT,
    "The text is not a statement of the dialect.",
    synonyms=("ParserError",),
)
BIND_ERROR = _r(
    "BIND_ERROR",
    StatusCode.INVALID_ARGUMENT,
    "The statement names something that does not exist.",
    synonyms=("BinderError",),
)
NO_PHYSICAL_SOURCE = _r(
    "NO_PHYSICAL_SOURCE",
    StatusCode.FAILED_PRECONDITION,
    "The query reads a logical source that has no physical source.",
    "Create a physical source for it first: a running query does not take up later ones.",
)
TYPE_ERROR = _r("TYPE_ERROR", StatusCode.INVALID_ARGUMENT, "Types in the statement do not fit.")
UNSUPPORTED = _r(
    "UNSUPPORTED",
    StatusCode.INVALID_ARGUMENT,
    "The statement asks for something that cannot run as a continuous query.",
    "The message says what to write instead, where there is something.",
    ("OptimizerError",),
)
STATEMENT_TOO_LARGE = _r(
    "STATEMENT_TOO_LARGE", StatusCode.INVALID_ARGUMENT, "A statement is longer or deeper than the coordinator accepts."
)
TABLE_TOO_LARGE = _r(
    "TABLE_TOO_LARGE",
    StatusCode.INVALID_ARGUMENT,
    "SHOW would answer more rows than fit.",
    "Add WHERE or LIMIT, or use the List call, which has pages.",
)
PLACEMENT_ERROR = _r(
    "PLACEMENT_ERROR",
    StatusCode.FAILED_PRECONDITION,
    "No placement of the query's fragments exists; the message says which agent lacked what.",
    synonyms=("PlacementError",),
)
INSUFFICIENT_CAPACITY = _r(
    "INSUFFICIENT_CAPACITY",
    StatusCode.FAILED_PRECONDITION,
    "No agent has enough free slots.",
    "Add agents or slots, or drop queries. Retrying alone does not help.",
    ("InsufficientCapacity",),
)
PLAN_OUTDATED = _r(
    "PLAN_OUTDATED",
    StatusCode.ABORTED,
    "The catalog changed under the plan more often than it could be made again.",
    "Try again.",
)

# Life of a query (reasons of QueryFailure, never of a call)
DEPLOYMENT_DEADLINE_EXCEEDED = _r(
    "DEPLOYMENT_DEADLINE_EXCEEDED", StatusCode.DEADLINE_EXCEEDED, "The query was not RUNNING before its deadline."
)
FRAGMENT_REFUSED = _r("FRAGMENT_REFUSED", StatusCode.FAILED_PRECONDITION, "An agent refused a fragment for good.")
FRAGMENT_FAILED = _r("FRAGMENT_FAILED", StatusCode.ABORTED, "A fragment broke for good while it ran.")
AGENT_GONE = _r(
    "AGENT_GONE", StatusCode.FAILED_PRECONDITION, "The one agent that could run a fragment was declared gone for good."
)

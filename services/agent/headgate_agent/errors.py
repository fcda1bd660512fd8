"""Every reason that an agent answers with, beyond the common ones."""

from __future__ import annotations

from grpc import StatusCode

from headgate_common.errors import COMMON, ReasonTable
from headgate_common.kafka_reasons import KAFKA

REASONS = ReasonTable(COMMON, KAFKA)
_r = REASONS.declare

STALE_TERM = _r(
    "STALE_TERM",
    StatusCode.ABORTED,
    "The command comes from a coordinator that no longer leads: the agent has obeyed a higher term.",
)
STALE_EPOCH = _r("STALE_EPOCH", StatusCode.ABORTED, "The epoch has passed: a later run, or another leader, is known.")
WRONG_INCARNATION = _r(
    "WRONG_INCARNATION", StatusCode.ABORTED, "The command is for another process than the one that answers."
)
FRAGMENT_NOT_REGISTERED = _r(
    "FRAGMENT_NOT_REGISTERED", StatusCode.NOT_FOUND, "The agent does not have the plan of that run."
)
PLAN_UNSUPPORTED = _r(
    "PLAN_UNSUPPORTED", StatusCode.FAILED_PRECONDITION, "The agent has nothing that could run the fragment."
)
JOURNAL_UNAVAILABLE = _r(
    "JOURNAL_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "The agent could not write down what it was told, so it did not do it.",
    "Free space on the agent's data volume; the coordinator tries again.",
)
JOURNAL_CORRUPT = _r(
    "JOURNAL_CORRUPT",
    StatusCode.DATA_LOSS,
    "The agent's journal is damaged in the middle, so what it was told to run is not known.",
    "Move the file away: the agent then starts empty, and the coordinator gives it its fragments again.",
)
DATA_IN_USE = _r(
    "DATA_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Another process uses the agent's data folder.",
    "Give each agent its own.",
)
CATALOG_MISMATCH = _r(
    "CATALOG_MISMATCH",
    StatusCode.FAILED_PRECONDITION,
    "The agent's data folder or object store belongs to another catalog than the coordinator's; nothing was changed.",
    "Correct the agent's coordinator, data or log.object_store. To give the data to this catalog, which deletes what "
    "it does not know, start the agent once with --adopt-catalog.",
)
MALFORMED_ROW = _r(
    "MALFORMED_ROW",
    StatusCode.INVALID_ARGUMENT,
    "A source has a row that cannot be read, and is told to fail on one.",
    "Correct the row, or create the source without on_error = 'fail'.",
)
SOURCE_MISMATCH = _r(
    "SOURCE_MISMATCH",
    StatusCode.FAILED_PRECONDITION,
    "What a source gives does not fit its columns or its parser.",
    "Create the source with the columns and options of its data.",
)
SOURCE_MISSING = _r(
    "SOURCE_MISSING",
    StatusCode.NOT_FOUND,
    "There is no file at a source's path, or it cannot be read; or there is no topic of that name.",
    "Put the file there, or let the source follow the path; create the topic, then the query again.",
)
SOURCE_CHANGED = _r(
    "SOURCE_CHANGED",
    StatusCode.DATA_LOSS,
    "A file is no longer what was read of it: it was cut, replaced or removed before its end was reached.",
    "Put the file back, or create the query again to read what is there now.",
)
TARGET_FORBIDDEN = _r(
    "TARGET_FORBIDDEN",
    StatusCode.PERMISSION_DENIED,
    "A source or sink names a path or an address that this agent is not configured to touch.",
    "Allow it with fragments.file_roots or fragments.tcp_targets.",
)
SOURCE_UNREACHABLE = _r(
    "SOURCE_UNREACHABLE",
    StatusCode.FAILED_PRECONDITION,
    "A TCP source could not connect, or its connection broke, and is told not to connect again.",
    "Create the source with reconnect = true, or the query again when the server is there.",
)
SINK_CHANGED = _r(
    "SINK_CHANGED",
    StatusCode.DATA_LOSS,
    "A sink's file or topic is no longer the one that rows were delivered to, or has lost some of them.",
    "Put the file back, or create the query again.",
)
SINK_IN_USE = _r(
    "SINK_IN_USE", StatusCode.FAILED_PRECONDITION, "Another sink writes to the same file.", "Give each its own file."
)
SINK_UNAVAILABLE = _r(
    "SINK_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "A sink's target cannot be written. Nothing that was not acknowledged is kept.",
    "Free space on its volume, or repair it; delivery begins again where it stopped.",
)
SINK_MISSING = _r(
    "SINK_MISSING",
    StatusCode.NOT_FOUND,
    "The topic that a sink delivers to is not there, or its file cannot be made where its path says.",
    "Create the topic or the folder, then the query again.",
)
SINK_REFUSED = _r(
    "SINK_REFUSED",
    StatusCode.PERMISSION_DENIED,
    "The cluster that a sink delivers to does not take this client: its user, its rights or its settings.",
    "Correct the sink's options, or give its user the rights that docs/sources-and-sinks.md names.",
)
EDGE_UNAVAILABLE = _r(
    "EDGE_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "The Kafka cluster that the edges of a query are on does not answer an agent. Nothing that was not acknowledged is "
    "kept.",
    "Start the brokers; the source or sink goes on where it stopped.",
)
EDGE_REFUSED = _r(
    "EDGE_REFUSED",
    StatusCode.PERMISSION_DENIED,
    "The Kafka cluster that the edges of a query are on does not take this client: its user, its rights or its "
    "settings.",
    "Correct the options of the query, or give its user the rights that docs/modes.md names.",
)
EDGE_MISSING = _r(
    "EDGE_MISSING",
    StatusCode.DATA_LOSS,
    "The Kafka topic of an edge was deleted, or records of it that were not delivered yet.",
    "Create the query again.",
)
NOT_LEADER = _r(
    "NOT_LEADER",
    StatusCode.UNAVAILABLE,
    "The process that was asked does not lead: of a partition or a consumer group, `leader` and `address` in the "
    "metadata say who does. Nothing was stored.",
    "Ask the one that is named; where none is, try again a little later.",
)
LEASE_CONFLICT = _r(
    "LEASE_CONFLICT",
    StatusCode.UNAVAILABLE,
    "The agent cannot be sure that it still leads the partition, so it answers for nothing. Records that it was sent "
    "are not stored; what is done once however often it is asked for, as a commit to an edge, may have been done.",
    "Try again: it, or another agent, leads soon.",
)
RECORDS_UNCERTAIN = _r(
    "RECORDS_UNCERTAIN",
    StatusCode.UNAVAILABLE,
    "The agent took the records and ceased to lead the partition before it could acknowledge them: they may be stored. "
    "`leader` and `address` in the metadata say who leads now, if that is known.",
    "Send them again if they may be there twice; an idempotent producer repeats the batch with its sequence, and it is "
    "stored once.",
)
UNKNOWN_PARTITION = _r(
    "UNKNOWN_PARTITION", StatusCode.NOT_FOUND, "There is no such topic or partition, as far as the agent knows."
)
OFFSET_OUT_OF_RANGE = _r(
    "OFFSET_OUT_OF_RANGE",
    StatusCode.OUT_OF_RANGE,
    "The offset is before the start of the partition or after its end; the metadata say where these are.",
    "Begin at `earliest` or `latest`.",
)
RECORD_TOO_LARGE = _r(
    "RECORD_TOO_LARGE",
    StatusCode.INVALID_ARGUMENT,
    "A record batch is larger than the topic's max_message_bytes; nothing was stored.",
    "Send smaller records, or raise the topic's setting.",
)
CORRUPT_BATCH = _r(
    "CORRUPT_BATCH",
    StatusCode.INVALID_ARGUMENT,
    "The bytes are not whole record batches with magic 2, or their CRC is wrong; nothing was stored.",
)
RECORDS_REFUSED = _r(
    "RECORDS_REFUSED", StatusCode.INVALID_ARGUMENT, "The records break a rule of the log; nothing was stored."
)
SEQUENCE_REFUSED = _r(
    "SEQUENCE_REFUSED",
    StatusCode.FAILED_PRECONDITION,
    "A batch of an idempotent producer does not follow its last one; nothing was stored. `problem` has Kafka's name, "
    "`expected` the sequence that comes next.",
)
TOPIC_INTERNAL = _r(
    "TOPIC_INTERNAL",
    StatusCode.FAILED_PRECONDITION,
    "The topic belongs to a query, which alone writes to it.",
)
WAL_UNAVAILABLE = _r(
    "WAL_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "The agent's write-ahead log cannot be written; nothing was stored.",
    "Free space on the agent's data volume.",
)
OBJECT_STORE_UNAVAILABLE = _r(
    "OBJECT_STORE_UNAVAILABLE", StatusCode.UNAVAILABLE, "The object store does not answer as it should.", "Try again."
)
DATA_DAMAGED = _r(
    "DATA_DAMAGED",
    StatusCode.DATA_LOSS,
    "An object that the catalog knows is missing or damaged.",
    "Restore it in the object store, or delete the records before it.",
)
FETCH_MEMORY_EXHAUSTED = _r(
    "FETCH_MEMORY_EXHAUSTED",
    StatusCode.RESOURCE_EXHAUSTED,
    "Records that others fetched and have not taken yet fill log.answer_bytes. A fetch waited for room until its "
    "deadline and read nothing; or a stream was ended because its caller held up others.",
    "Ask again from the same offset: room is made as answers are taken. If it lasts, raise log.answer_bytes.",
)
GROUP_IN_USE = _r(
    "GROUP_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "The consumer group has members, so only they may commit its offsets.",
    "Stop the consumers of the group first, or use another group.",
)
GROUP_UNAVAILABLE = _r(
    "GROUP_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "No agent can lead the consumer group now.",
    "Try again: it is a matter of seconds unless agents or the coordinator are away.",
)
STAGE_NOT_FOUND = _r(
    "STAGE_NOT_FOUND",
    StatusCode.NOT_FOUND,
    "A commit names a stage that is not there: it was dropped with the run that made it.",
    "Stage its batches again.",
)
ENGINE_LOST = _r(
    "ENGINE_LOST",
    StatusCode.UNAVAILABLE,
    "The engine that ran a fragment has died, was restarted, or does not answer; the run is started again.",
)
RUN_STOPPED = _r(
    "RUN_STOPPED",
    StatusCode.ABORTED,
    "A run was stopped on its engine by somebody else than its agent; it is started again.",
)
RESULT_NOT_FOUND = _r(
    "RESULT_NOT_FOUND",
    StatusCode.NOT_FOUND,
    "No temporary query of that uid gives its rows here.",
    "Ask the agent of the query's SINK fragment, and ask before the query is taken for abandoned.",
)
RESULT_IN_USE = _r(
    "RESULT_IN_USE", StatusCode.FAILED_PRECONDITION, "Somebody else reads the rows of the temporary query."
)
RESULT_ABANDONED = _r(
    "RESULT_ABANDONED",
    StatusCode.FAILED_PRECONDITION,
    "Nobody has read the rows of a temporary query for longer than fragments.result_patience, so it ends.",
)

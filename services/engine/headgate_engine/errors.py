"""Every reason that an engine answers with, beyond the common ones."""

from __future__ import annotations

from grpc import StatusCode

from headgate_common.errors import COMMON, ReasonTable
from headgate_common.kafka_reasons import KAFKA

REASONS = ReasonTable(COMMON, KAFKA)
_r = REASONS.declare

ENGINE_WARMING_UP = _r(
    "ENGINE_WARMING_UP",
    StatusCode.UNAVAILABLE,
    "Spark is not ready yet; nothing was done.",
    "Try again when the engine's health says SERVING.",
)
SPARK_UNAVAILABLE = _r(
    "SPARK_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "Spark could not be started, or has died; the engine ends.",
    "The message says what is missing: most often a JDK, 17 or 21.",
)
STALE_EPOCH = _r("STALE_EPOCH", StatusCode.ABORTED, "A later run of the fragment is known.")
NO_SLOT = _r(
    "NO_SLOT",
    StatusCode.RESOURCE_EXHAUSTED,
    "A realtime run holds a task slot for each partition that it reads, and not so many are free.",
    "Stop another realtime query, give the engine more cores, or run the query with mode = 'exactly_once'.",
)
TOO_FEW_SLOTS = _r(
    "TOO_FEW_SLOTS",
    StatusCode.FAILED_PRECONDITION,
    "A realtime run needs a task slot for each partition that it reads, and the engine has not so many for such runs "
    "even when it is idle.",
    "Give the engine more cores, or run the query with mode = 'exactly_once'.",
)
RUN_ACTIVE = _r("RUN_ACTIVE", StatusCode.FAILED_PRECONDITION, "A run of the fragment is here.", "Stop it first.")
RUN_NOT_FOUND = _r("RUN_NOT_FOUND", StatusCode.NOT_FOUND, "This engine does not have that run.")
PLAN_UNSUPPORTED = _r(
    "PLAN_UNSUPPORTED",
    StatusCode.FAILED_PRECONDITION,
    "The engine cannot run such a plan.",
    "The message names the part of it.",
)
KAFKA_JARS_MISSING = _r(
    "KAFKA_JARS_MISSING",
    StatusCode.FAILED_PRECONDITION,
    "Spark's Kafka connector is not there, so Kafka topics and realtime mode cannot be used; all else works.",
    "Fetch its four jars with `headgate-engine --fetch-jars kafka`, or name them with spark.jars; restart the engine.",
)
S3_JARS_MISSING = _r(
    "S3_JARS_MISSING",
    StatusCode.FAILED_PRECONDITION,
    "The checkpoint is on S3, and the engine lacks the jars that write there.",
    "Bring them with `headgate-engine --fetch-jars s3` and restart the engine, or set `checkpoints` of agents to a "
    "shared folder.",
)
QUERY_INVALID = _r(
    "QUERY_INVALID", StatusCode.INVALID_ARGUMENT, "Spark refuses the SQL, or a stream cannot do what it asks."
)
QUERY_FAILED = _r(
    "QUERY_FAILED",
    StatusCode.FAILED_PRECONDITION,
    "The data made the query fail, such as a division by zero or a number out of range; it would fail again.",
    "Handle such values in the SQL, for instance with try_divide or a filter.",
)
SPARK_FAILED = _r(
    "SPARK_FAILED",
    StatusCode.INTERNAL,
    "Spark failed in a way that another start may repair.",
)
BAD_RECORD = _r(
    "BAD_RECORD",
    StatusCode.FAILED_PRECONDITION,
    "A record cannot be decoded, and the query is set to fail over it.",
    "Correct the producer, or let such records go to the error topic.",
)
CHECKPOINT_INVALID = _r(
    "CHECKPOINT_INVALID",
    StatusCode.FAILED_PRECONDITION,
    "The checkpoint cannot be used: it is damaged, of another plan, or cannot be written.",
)
CHECKPOINT_UNREACHABLE = _r(
    "CHECKPOINT_UNREACHABLE",
    StatusCode.UNAVAILABLE,
    "The place of the checkpoint does not answer, or refuses a query that has written there before.",
    "Look at the store and the engine's rights there; the run is started again.",
)
RESULT_TOO_LARGE = _r(
    "RESULT_TOO_LARGE",
    StatusCode.OUT_OF_RANGE,
    "The result has more rows than asked for.",
    "Aggregate or limit it in the SQL, or raise max_rows.",
)
INVALID_SPARK_SETTING = _r(
    "INVALID_SPARK_SETTING", StatusCode.INVALID_ARGUMENT, "A setting of the Spark session that a caller may not change."
)
EDGE_FAILED = _r(
    "EDGE_FAILED",
    StatusCode.UNAVAILABLE,
    "An edge could not be read or written for too long, or is led by another agent now.",
    "Start the run again with the present address of the edge.",
)
EDGE_DATA_LOST = _r(
    "EDGE_DATA_LOST",
    StatusCode.DATA_LOSS,
    "Records that the run still needs are not on the edge or topic any more.",
    "Recreate the query, or choose a later start.",
)
KEEP_ALIVE_MISSED = _r(
    "KEEP_ALIVE_MISSED",
    StatusCode.ABORTED,
    "The agent did not keep the run alive, so the engine stopped it by its own clock.",
)

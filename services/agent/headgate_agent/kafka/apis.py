"""Which requests of the Kafka protocol are answered, and in which versions. ApiVersions and docs/kafka.md are made from
this table; tests/unit/kafka sends every version in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request. `name` is Kafka's, `schema` that of kio. `note` is for the documentation."""

    key: int
    name: str
    schema: str
    first: int
    last: int
    note: str = ""
    # What clients are told instead of `first`, where some need to see a lower number.
    announced_first: int | None = None


PRODUCE = Api(
    0,
    "Produce",
    "produce",
    3,
    12,
    "Record batches of format 2 only. `acks` 1 and -1 both wait until records are as durable as the topic promises; "
    "with 0 there is no answer. Idempotent producers are remembered over changes of leader; transactions are refused. "
    "Versions from 0 are announced, as Kafka 4 does, because librdkafka otherwise turns compression off; 0 to 2 are "
    "refused.",
    announced_first=0,
)
FETCH = Api(
    1,
    "Fetch",
    "fetch",
    4,
    16,
    "From the leader only. No fetch sessions: the session id is always 0, and clients then send full requests.",
)
LIST_OFFSETS = Api(
    2,
    "ListOffsets",
    "list_offsets",
    1,
    9,
    "Earliest, latest, the first at or after a time, and the one with the largest timestamp (from version 7). The "
    "local part of the log is all of it, and nothing is tiered.",
)
METADATA = Api(3, "Metadata", "metadata", 0, 12, "Internal topics are left out. Topic ids are derived from uids.")
OFFSET_COMMIT = Api(8, "OffsetCommit", "offset_commit", 2, 9)
OFFSET_FETCH = Api(9, "OffsetFetch", "offset_fetch", 1, 9)
FIND_COORDINATOR = Api(
    10,
    "FindCoordinator",
    "find_coordinator",
    0,
    4,
    "Groups only; for transactions TRANSACTIONAL_ID_AUTHORIZATION_FAILED.",
)
JOIN_GROUP = Api(11, "JoinGroup", "join_group", 0, 9, "The classic protocol: eager and cooperative, static members.")
HEARTBEAT = Api(12, "Heartbeat", "heartbeat", 0, 4)
LEAVE_GROUP = Api(13, "LeaveGroup", "leave_group", 0, 5)
SYNC_GROUP = Api(14, "SyncGroup", "sync_group", 0, 5)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", "describe_groups", 0, 6)
LIST_GROUPS = Api(16, "ListGroups", "list_groups", 0, 5, "The groups that this agent leads or would lead.")
API_VERSIONS = Api(18, "ApiVersions", "api_versions", 0, 4)
CREATE_TOPICS = Api(
    19,
    "CreateTopics",
    "create_topics",
    2,
    7,
    "A replication factor other than 1 and -1 is refused: the object store replicates. No manual assignment.",
)
DELETE_TOPICS = Api(
    20, "DeleteTopics", "delete_topics", 1, 6, "TOPIC_DELETION_DISABLED while something uses the topic."
)
DELETE_RECORDS = Api(
    21,
    "DeleteRecords",
    "delete_records",
    0,
    2,
    "Partitions are done at once. One that is not done in the client's time, `timeout_min` at least and "
    "`admin_timeout` at most, is REQUEST_TIMED_OUT: it may have happened, and may be asked for again.",
)
INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    "init_producer_id",
    0,
    4,
    "Idempotence only; a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED. While the coordinator "
    "is away COORDINATOR_LOAD_IN_PROGRESS, which every producer tries again.",
)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", "describe_configs", 1, 4, "Topics, and the few settings of a broker.")
ALTER_CONFIGS = Api(33, "AlterConfigs", "alter_configs", 0, 2, "Topics only; what is not named goes to its default.")
CREATE_PARTITIONS = Api(
    37, "CreatePartitions", "create_partitions", 0, 3, "Always INVALID_PARTITIONS: the number is fixed at creation."
)
DELETE_GROUPS = Api(42, "DeleteGroups", "delete_groups", 0, 2)
INCREMENTAL_ALTER_CONFIGS = Api(
    44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, "Topics only: SET and DELETE."
)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", "describe_cluster", 0, 1)

APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS,
        DESCRIBE_CLUSTER,
    )
}

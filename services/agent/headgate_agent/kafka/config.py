"""Settings of the Kafka port and of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_common.backoff import Backoff
from headgate_common.config import Bytes, Seconds, section, setting

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """What one client, and all of them together, may ask of the port."""

    connections: int = setting(
        10_000,
        "Connections held at once, TLS handshakes included; the next is closed. Fewer where the process may not have "
        "as many open files (ulimit -n), which it says when it starts.",
        minimum=1,
    )
    descriptors_kept: int = setting(
        256, "Open files that connections of Kafka clients leave to the log and to gRPC.", minimum=16
    )
    accept_retry: Seconds = setting(
        1.0,
        "How long no connection is accepted after one could not be, because open files or memory ran out.",
        minimum=0.01,
    )
    warn_interval: Seconds = setting(
        60.0, "How often it is logged at most that connections are refused, or cannot be accepted.", minimum=0.0
    )
    frame_bytes: Bytes = setting(
        100 * 2**20, "Longest request; a longer one closes its connection (socket.request.max.bytes).", minimum=1024
    )
    buffered_bytes: Bytes = setting(
        256 * 2**20,
        "Bytes of requests held for all connections; above it nothing more is read (queued.max.request.bytes).",
        minimum=2**20,
    )
    request_items: int = setting(
        50_000,
        "Items that one request may have: topics, partitions, members and whatever else it lists, tagged fields too. "
        "They take memory, and time of the event loop that all clients share. A request with more is refused where the "
        "protocol has an error for the whole of it, else its connection is closed.",
        minimum=100,
    )
    turn_items: int = setting(
        500,
        "After so many items of a request other clients have their turn; longer answers are written beside the event "
        "loop.",
        minimum=1,
    )
    in_flight: int = setting(128, "Requests of a connection held at once; the next is not read yet.", minimum=1)
    idle: Seconds = setting(
        600.0, "A connection without a request for so long is closed (connections.max.idle.ms).", minimum=0.1
    )
    sweep_interval: Seconds = setting(
        5.0,
        "How often connections are looked over for those that are idle or stalled; a quarter of either limit where "
        "that is shorter.",
        minimum=0.01,
    )
    stalled: Seconds = setting(
        30.0,
        "A client that takes longer to send a request it has begun, or takes nothing of an answer for so long, is cut "
        "off; when others wait for its memory, one that has not taken all of its answer too.",
        minimum=0.1,
    )
    read_bytes: Bytes = setting(
        64 * 2**10, "Most that is read from a socket at once; one buffer serves all connections.", minimum=1024
    )
    eager_bytes: Bytes = setting(
        2**20,
        "A request up to this gets its memory when it begins; a longer one as its bytes arrive, so that a length alone "
        "costs nothing.",
        minimum=1024,
    )
    write_bytes: Bytes = setting(
        256 * 2**10,
        "Most that a socket is given of an answer at once: what it does not take then is copied.",
        minimum=1024,
    )
    held_bytes: Bytes = setting(
        64 * 2**10, "Bytes that a socket has not taken above which it is given no more.", minimum=1024
    )
    write_buffer: Bytes = setting(
        1 << 20, "Bytes of answers that may wait for a slow client before its next request is begun.", minimum=1024
    )
    fetch_bytes: Bytes = setting(
        16 * 2**20,
        "Most bytes of records in one answer, whatever the client asks (fetch.max.bytes). Clients look at records when "
        "the whole answer is there, and ask for more: many of this size are faster than few of 50 MB.",
        minimum=1024,
    )
    answer_bytes: Bytes = setting(
        256 * 2**20,
        "Bytes of fetched records held for all connections until clients have taken them; where it is short, fetches "
        "get less at once, and wait.",
        minimum=2**20,
    )
    metadata_wait: Seconds = setting(
        5.0,
        "How long a client that asks who is there waits for an answer while nobody is known to be, as just after a "
        "start. Then it is told of all agents that are known; where none is, its connection is closed.",
        minimum=0.0,
    )
    timeout_min: Seconds = setting(
        1.0,
        "Least time that a produce or an administrative request has: clients that ask for less mean replicas, of which "
        "there are none.",
        minimum=0.001,
    )
    fetch_wait: Seconds = setting(60.0, "Longest that a fetch waits, whatever the client asks.", minimum=0.0)
    produce_timeout: Seconds = setting(
        300.0, "Longest that a produce waits to be durable, whatever the client asks.", minimum=0.1
    )
    auto_create_timeout: Seconds = setting(
        10.0, "Longest that a client waits for a topic to be created because it asked for it.", minimum=0.1
    )
    backlog: int = setting(1024, "Connections that may wait to be accepted.", minimum=1)
    admin_timeout: Seconds = setting(
        60.0, "Longest that an administrative request may take, whatever the client asks.", minimum=0.1
    )
    drain: Seconds = setting(5.0, "Time that requests in flight have to finish when the agent stops.", minimum=0.0)


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """How the coordinator is asked on behalf of clients, about topics, producers and groups."""

    retry_min: Seconds = setting(
        0.02, "Longest wait before the coordinator is asked again, the first time; it doubles.", minimum=0.001
    )
    retry_max: Seconds = setting(0.5, "Longest wait before it is asked again.", minimum=0.001)
    seen_within: Seconds = setting(
        2.0,
        "How long the answer to a change of topics waits until this agent has heard of it too, and new partitions have "
        "leaders, so that the client's next question finds them.",
        minimum=0.0,
    )
    asked_within: Seconds = setting(
        1.0,
        "How long the coordinator may take to say whether there are topics that a request names and this agent has not "
        "heard of.",
        minimum=0.01,
    )
    asked_topics: int = setting(
        100, "Topics of one request that it is asked for; of the rest is said that nobody knows yet.", minimum=1
    )
    absent_for: Seconds = setting(0.5, "How long it is believed that there is none.", minimum=0.0)
    absent_topics: int = setting(10_000, "Names of topics of which that is remembered.", minimum=1)
    defaults_for: Seconds = setting(
        60.0,
        "How long its defaults for settings of topics are believed, by which DescribeConfigs tells what was set.",
        minimum=0.0,
    )
    look_interval: Seconds = setting(
        0.01, "How often it is looked whether what a client waits for has been heard of.", minimum=0.001
    )
    producer_ids: int = setting(
        100,
        "Ids for idempotent producers that are fetched at once; those not given out before a restart never are.",
        minimum=1,
        maximum=10_000,
    )

    def __post_init__(self) -> None:
        if self.retry_min > self.retry_max:
            raise ValueError("retry_min: no longer than retry_max")

    @property
    def backoff(self) -> Backoff:
        return Backoff(initial=self.retry_min, cap=self.retry_max)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What members of consumer groups may ask for. Times are on the agent's monotonic clock."""

    session_timeout_min: Seconds = setting(
        1.0, "Shortest session timeout a member may ask for (group.min.session.timeout.ms).", minimum=0.001
    )
    session_timeout_max: Seconds = setting(
        1800.0, "Longest session timeout a member may ask for (group.max.session.timeout.ms).", minimum=0.001
    )
    rebalance_timeout_max: Seconds = setting(
        3600.0, "Longest that a rebalance waits for a member, whatever it asks for.", minimum=0.001
    )
    max_size: int = setting(10_000, "Members of a group (group.max.size).", minimum=1)
    member_bytes: Bytes = setting(
        1 << 20, "Longest that what a member says of itself may be; POLICY_VIOLATION beyond it.", minimum=1024
    )
    group_bytes: Bytes = setting(
        64 << 20,
        "Memory for what the members of a group say and are assigned, together; POLICY_VIOLATION beyond it.",
        minimum=1024,
    )
    forget_after: Seconds = setting(
        600.0,
        "A group without members leaves memory after so long without a request; its offsets are in the catalog.",
        minimum=0.0,
    )
    look_interval: Seconds = setting(
        0.5,
        "How often an agent looks whether groups that it leads fall to another, and tries again to give one back.",
        minimum=0.01,
    )
    looks_back: tuple[Seconds, ...] = setting(
        (0.0, 2.0, 8.0, 30.0),
        "How long after a call about a group was given up, or a group was given back, the coordinator is asked whether "
        "the call came late and left the group here; it is then given back. Each later than the one before; none: "
        "never.",
    )
    tick_interval: Seconds = setting(0.005, "Least time between two looks at what is due in a group.", minimum=0.0001)
    catalog_timeout: Seconds = setting(
        10.0, "How long a call about a group to the coordinator or to another agent may take.", minimum=0.1
    )
    initial_rebalance_delay: Seconds = setting(
        0.25,
        "How long the first rebalance of an empty group waits for more members "
        "(group.initial.rebalance.delay.ms). Some clients share out what they do not know yet if they are answered "
        "before they have their metadata. 0 starts single consumers at once; 3 s, as with Kafka, saves rebalances "
        "where many start together.",
        minimum=0.0,
    )
    metadata_bytes: int = setting(
        4096, "Longest text stored with a committed offset (offset.metadata.max.bytes).", minimum=0, maximum=4096
    )

    def __post_init__(self) -> None:
        if list(self.looks_back) != sorted(set(self.looks_back)):
            raise ValueError("looks_back: each must be later than the one before")


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The Kafka port of an agent with the role `log`."""

    listen: str = setting(
        f"127.0.0.1:{DEFAULT_PORT}", "Address for Kafka clients. Port 0 takes any free port; empty: no Kafka port."
    )
    advertise: str = setting(
        "", "Address that Kafka clients are told (advertised.listeners); empty: the one it listens on."
    )
    cluster_id: str = setting("headgate", "The cluster id that clients are told; the same on every agent of a cluster.")
    auto_create: bool = setting(
        False, "Whether asking for a topic that is not there creates it (auto.create.topics.enable)."
    )
    auto_create_partitions: int = setting(
        1, "Partitions of topics created without a number (num.partitions).", minimum=1, maximum=10_000
    )
    departed_listed: Seconds = setting(
        10.0,
        "An agent that is gone is listed as a broker for so long: librdkafka finds new leaders a second later when the "
        "former one vanishes from the list at the same time.",
        minimum=0.0,
    )
    limits: KafkaLimits = section(KafkaLimits, "How much it takes on.")
    catalog: CatalogLimits = section(CatalogLimits, "How the coordinator is asked for clients.")
    groups: GroupLimits = section(GroupLimits, "Consumer groups.")

"""Settings of the Kafka port and of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_common.config import Bytes, Seconds, section, setting

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    """What one client, and all of them together, may ask of the port."""

    connections: int = setting(10_000, "Connections held at once; the next is closed.", minimum=1)
    frame_bytes: Bytes = setting(
        100 * 2**20, "Longest request; a longer one closes its connection (socket.request.max.bytes).", minimum=1024
    )
    buffered_bytes: Bytes = setting(
        256 * 2**20,
        "Bytes of requests held for all connections; above it nothing more is read (queued.max.request.bytes).",
        minimum=2**20,
    )
    in_flight: int = setting(128, "Requests of a connection held at once; the next is not read yet.", minimum=1)
    idle: Seconds = setting(
        600.0, "A connection without a request for so long is closed (connections.max.idle.ms).", minimum=0.1
    )
    stalled: Seconds = setting(
        30.0,
        "A client that takes longer to send a request it has begun, or takes nothing of an answer for so long, is cut "
        "off; when others wait for its memory, one that has not taken all of its answer too.",
        minimum=0.1,
    )
    write_buffer: Bytes = setting(
        1 << 20, "Bytes of answers that may wait for a slow client before its next request is begun.", minimum=1024
    )
    fetch_bytes: Bytes = setting(
        64 * 2**20, "Most bytes of records in one answer, whatever the client asks (fetch.max.bytes).", minimum=1024
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
        "start.",
        minimum=0.0,
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
    catalog_timeout: Seconds = setting(
        10.0, "How long a call about a group to the coordinator or to another agent may take.", minimum=0.1
    )
    initial_rebalance_delay: Seconds = setting(
        0.0,
        "How long the first rebalance of an empty group waits for more members "
        "(group.initial.rebalance.delay.ms). 0 starts single consumers at once; 3 s saves rebalances where many start "
        "together.",
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
    groups: GroupLimits = section(GroupLimits, "Consumer groups.")

"""Settings of the log in an agent with the role `log`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate_agent.log.answer_memory import DEFAULT_BYTES, DEFAULT_LEAST
from headgate_agent.log.answers import DEFAULT_STALLED
from headgate_agent.log.contract import PartitionSettings
from headgate_agent.log.fetching import DEFAULT_READS
from headgate_agent.log.limits import CallLimits, ForwardLimits
from headgate_agent.log.remote_objects import StoreTries
from headgate_agent.log.store_identity import StorePatience
from headgate_agent.log.unpacking import UnpackLimits
from headgate_agent.log.upkeep import UpkeepSettings
from headgate_agent.log.uploading import DEFAULT_BACKOFF
from headgate_agent.log.wal_files import DEFAULT_SPARES
from headgate_agent.log.world import BrokerSettings
from headgate_common.backoff import Backoff
from headgate_common.config import Bytes, Seconds, setting

_CALLS = CallLimits()
_STORE = StorePatience()
_TRIES = StoreTries()
_UNPACK = UnpackLimits()
_PARTITION = PartitionSettings()
_UPKEEP = UpkeepSettings()
_BROKER = BrokerSettings()


@dataclass(frozen=True, slots=True)
class LogConfig:
    object_store: str = setting(
        "",
        "Where segments are: a folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or memory://. The "
        "same for all agents of a group. Empty: `objects` in the agent's data folder, for one agent alone.",
    )
    object_options: Mapping[str, str] = setting(
        {},
        "Options of the store, such as endpoint, region, access_key_id, secret_access_key, allow_http; what is missing "
        "comes from the environment, as usual for that cloud.",
        secret=True,
    )
    object_timeout: Seconds = setting(30.0, "How long one request to the object store may take.", minimum=0.1)
    object_connect_timeout: Seconds = setting(
        _TRIES.connect_timeout, "How long a connection to a remote object store may take to be made.", minimum=0.01
    )
    object_retries: int = setting(
        _TRIES.retries, "How often one request to a remote store is repeated within its time.", minimum=0
    )
    object_retry_min: Seconds = setting(
        _TRIES.backoff.initial, "Longest wait before it is repeated the first time; it doubles.", minimum=0.001
    )
    object_retry_max: Seconds = setting(_TRIES.backoff.cap, "Longest wait before it is repeated.", minimum=0.001)
    object_attempts: int = setting(4, "How often a read of the object store is tried.", minimum=1)
    store_timeout: Seconds = setting(
        _STORE.seconds,
        "How long an agent that starts waits for its object store to say which one it is; it then starts without.",
        minimum=0.0,
    )
    store_attempts: int = setting(_STORE.attempts, "How often it asks in that time.", minimum=1)
    store_retry_min: Seconds = setting(
        _STORE.backoff.initial, "Longest wait after the first vain question; it doubles.", minimum=0.001
    )
    store_retry_max: Seconds = setting(_STORE.backoff.cap, "Longest wait between vain questions.", minimum=0.001)
    upload_retry_min: Seconds = setting(
        DEFAULT_BACKOFF.initial, "Longest wait after the first upload that failed; it doubles.", minimum=0.001
    )
    upload_retry_max: Seconds = setting(DEFAULT_BACKOFF.cap, "Longest wait between uploads that failed.", minimum=0.001)
    uploads: int = setting(16, "Segments that are uploaded at once.", minimum=1)
    reads: int = setting(64, "Reads of the object store at once.", minimum=1)
    read_timeout: Seconds = setting(
        20.0,
        "How long one read of segments for a client may take, attempts and the list of segments included; shorter than "
        "clients wait for an answer. It is then told to ask again.",
        minimum=0.1,
    )
    fetch_reads: int = setting(DEFAULT_READS, "Partitions whose segments are read at once for one fetch.", minimum=1)
    read_segments: int = setting(
        _BROKER.read_segments, "Small segments of a partition that are read at once for one fetch.", minimum=1
    )
    fetch_wait: Seconds = setting(
        _CALLS.fetch_wait, "Longest that a fetch over gRPC waits for records, whatever its caller asks.", minimum=0.0
    )
    lag_timeout: Seconds = setting(
        _CALLS.lag_timeout,
        "How long the leader of one partition may take to say how far behind a group is; its lag is then not known.",
        minimum=0.01,
    )
    forward_timeout: Seconds = setting(
        _CALLS.forward.timeout,
        "How long a call that is passed on to the leader of a partition may take, where its caller set no deadline.",
        minimum=0.1,
    )
    forward_retry_min: Seconds = setting(
        _CALLS.forward.backoff.initial,
        "Longest wait before such a call is passed on again, the first time; it doubles.",
        minimum=0.001,
    )
    forward_retry_max: Seconds = setting(
        _CALLS.forward.backoff.cap, "Longest wait before such a call is passed on again.", minimum=0.001
    )
    stream_wait: Seconds = setting(
        _CALLS.stream_wait,
        "A stream that has nothing to send looks so often whether its partitions are still led where it reads them.",
        minimum=0.1,
    )
    stream_window: int = setting(
        _CALLS.stream_window,
        "Requests of one StreamProduce that are on their way at once; beyond it the sender is held back.",
        minimum=1,
    )
    tail_patience: Seconds = setting(
        _CALLS.tail_patience,
        "How long TailRecords waits for a partition that nobody leads, before it ends.",
        minimum=0.1,
    )
    stream_bytes: Bytes = setting(
        _CALLS.stream_bytes,
        "Bytes of requests of all StreamProduce that are on their way at once. Beyond it each stream has one.",
        minimum=0,
    )
    tail_pages: int = setting(
        _CALLS.tail_pages, "Pages that TailRecords reads ahead of a slow caller, over all partitions.", minimum=1
    )
    tail_page_bytes: Bytes = setting(
        _CALLS.tail_page_bytes, "Bytes of one such page; no more than answer_most.", minimum=1024
    )
    tail_page_records: int = setting(_CALLS.tail_page_records, "Records of one such page.", minimum=1)
    edge_page_bytes: Bytes = setting(
        _CALLS.edge_page_bytes,
        "Bytes of records in one message of ReadEdge, about; no more than answer_most.",
        minimum=1024,
    )
    answer_most: Bytes = setting(
        _CALLS.answer_most,
        "Bytes of records in one answer over gRPC, whatever its caller asks; well below server.message_size.",
        minimum=1024,
    )
    wal_file_bytes: Bytes = setting(128 * 2**20, "Size of one write-ahead file.", minimum=4096)
    wal_files: int = setting(
        3,
        "Full write-ahead files; where there are more, what keeps the oldest is uploaded without waiting for a full "
        "segment. Bounds the room on disk and the time of a recovery.",
        minimum=1,
    )
    wal_spare_files: int = setting(
        DEFAULT_SPARES,
        "Write-ahead files that nobody needs and that are kept to be written over: a write is cheaper where nothing "
        "has to be allocated.",
        minimum=0,
    )
    tail_bytes: Bytes = setting(
        256 * 2**20, "Memory for records that segments hold already, so that readers who keep up find them.", minimum=0
    )
    unflushed_bytes: Bytes = setting(
        256 * 2**20, "Memory for records that no segment holds yet; beyond it producers are held back.", minimum=2**20
    )
    partition_unflushed_bytes: Bytes = setting(
        64 * 2**20,
        "The same for one partition; of a WAL edge of a query beyond edge_hold_bytes.",
        minimum=2**20,
    )
    edge_hold_bytes: Bytes = setting(
        96 * 2**20,
        "What a WAL edge of a query may hold before full segments of it are uploaded, while no more than half of "
        "unflushed_bytes is taken: what its reader reads before never is. More than fragments.edge_max_lag, so that a "
        "source which waits for its query costs the object store nothing.",
        minimum=0,
    )
    block_cache: Bytes = setting(128 * 2**20, "Memory for blocks of segments that were read.", minimum=0)
    disk_cache: Bytes = setting(
        2**30,
        "Disk for what was read of a remote object store; 0: none. Not used where the store is a folder.",
        minimum=0,
    )
    answer_bytes: Bytes = setting(
        DEFAULT_BYTES,
        "Bytes of fetched records held for all callers over gRPC until they have taken them. Where it is short, "
        "fetches get less at once, and wait for room until their deadline: then FETCH_MEMORY_EXHAUSTED.",
        minimum=2**20,
    )
    answer_least: Bytes = setting(
        DEFAULT_LEAST,
        "A fetch over gRPC waits for room for so many bytes before it reads, where others hold the rest.",
        minimum=1024,
    )
    answer_stalled: Seconds = setting(
        DEFAULT_STALLED,
        "A caller that takes longer for one part of a stream of records is cut off when others wait for its memory.",
        minimum=0.1,
    )
    staged_bytes: Bytes = setting(
        32 * 2**20,
        "Memory for stages of OBJECT edges that are not committed yet, so that readers who keep up find them; others "
        "are read from the object store. As much again for those of WAL edges; others are read from the write-ahead "
        "log when they are committed.",
        minimum=0,
    )
    partition_producers: int = setting(
        10_000,
        "Idempotent producers that a partition remembers; the one that was silent longest goes.",
        minimum=1,
        maximum=10_000,
    )
    threads: int = setting(2, "Threads that compress what is uploaded.", minimum=1)
    read_threads: int = setting(
        2, "Threads that unpack blocks of segments and look into batches, for readers and lookups by time.", minimum=1
    )
    unpack_bytes: Bytes = setting(
        _UNPACK.batch_bytes,
        "Bytes that the records of one batch may take unpacked, to be looked into: by lookups by time and by readers "
        "of plain records. Kafka clients unpack for themselves. Memory for one such batch.",
        minimum=2**20,
    )
    unpack_small: Bytes = setting(
        _UNPACK.small_bytes,
        "Batches whose records take more are looked into one at a time in an agent; others never wait for them.",
        minimum=1024,
    )
    unpack_slice: int = setting(
        _UNPACK.slice_records,
        "Records of a batch that are looked at before others have their turn in the same thread, about.",
        minimum=1,
    )
    timestamp_after_max: Seconds = setting(
        _PARTITION.after_max,
        "Records whose time is further ahead of the agent's clock are refused with INVALID_TIMESTAMP. Kafka's "
        "`log.message.timestamp.after.max.ms`, which is 1 h there: here an agent whose clock is wrong by days does not "
        "turn producers away whose clocks are right.",
        minimum=0.0,
    )
    reserve_ahead: int = setting(
        1_000_000,
        "Offsets that the leader of a WAL partition reserves at once; a lost disk leaves a hole of so many.",
        minimum=1,
    )
    guard: Seconds = setting(
        1.0,
        "How often an agent looks at least whether its session still holds what it leads. It looks at once when it "
        "hears of it, and when its time has run out.",
        minimum=0.001,
    )
    acquire_partitions: int = setting(
        _BROKER.acquire_partitions, "Partitions that an agent asks the catalog for in one call.", minimum=1
    )
    commit_stages: int = setting(
        _BROKER.commit_stages,
        "Stages of an OBJECT edge that one commit may name: each is a segment in the one transaction of the catalog.",
        minimum=1,
    )
    retry: Seconds = setting(
        1.0, "A partition that was refused for a passing reason is asked for again after this long.", minimum=0.01
    )
    view_silence: Seconds = setting(
        30.0,
        "A watch of the catalog that brings nothing for this long, not even a bookmark, is begun again; longer than "
        "the coordinator's bookmark_interval.",
        minimum=0.1,
    )
    relook: Seconds = setting(30.0, "How often assignment is looked over, though nothing has changed.", minimum=0.1)
    doubt: Seconds = setting(
        4.0,
        "How long calls wait, before they are refused, while a session that was not renewed in time may yet live on: "
        "the coordinator may be on its way back.",
        minimum=0.0,
    )
    transfer_timeout: Seconds = setting(10.0, "How long the hand-over of a partition may take.", minimum=0.1)
    leave_timeout: Seconds = setting(
        4.0, "How long handing everything over may take when the agent stops.", minimum=0.0
    )
    retention_interval: Seconds = setting(60.0, "How often the retention of topics is applied.", minimum=0.1)
    trim_interval: Seconds = setting(
        10.0,
        "How often the catalog is told what readers of edges need no more; what was trimmed since takes room for as "
        "long.",
        minimum=0.1,
    )
    wal_interval: Seconds = setting(5.0, "How often write-ahead files that nobody needs are deleted.", minimum=0.1)
    merge_interval: Seconds = setting(10.0, "How often small segments are looked for.", minimum=0.1)
    merge_below: Bytes = setting(2 * 2**20, "Segments below this size are merged.", minimum=0)
    merge_least: int = setting(16, "How many small segments must follow each other to be merged.", minimum=2)
    merge_most: Bytes = setting(32 * 2**20, "Bytes of segments that one merge takes at once.", minimum=2**20)
    delete_grace: Seconds = setting(
        60.0, "How long objects stay after their records are gone, for readers that began before.", minimum=0.0
    )
    delete_interval: Seconds = setting(
        _UPKEEP.delete_interval, "How often such objects are looked for; no less often than delete_grace.", minimum=0.01
    )
    delete_failures: int = setting(
        10, "Deletions that may fail before the object store is left alone until the next turn.", minimum=1
    )
    orphan_interval: Seconds = setting(3600.0, "How often objects that no topic knows are looked for.", minimum=0.1)
    orphan_grace: Seconds = setting(
        3600.0,
        "How long such an object must have been unknown to be deleted, by the monotonic clock of the agent that looks; "
        "a commit may still be on its way. What a crash left unfinished in a folder goes after the same time.",
        minimum=0.0,
    )

    def __post_init__(self) -> None:
        for name in ("store", "object", "upload", "forward"):
            if getattr(self, f"{name}_retry_min") > getattr(self, f"{name}_retry_max"):
                raise ValueError(f"{name}_retry_min: no longer than {name}_retry_max")
        for name in ("tail_page_bytes", "edge_page_bytes"):
            if getattr(self, name) > self.answer_most:
                raise ValueError(f"{name}: no more than answer_most")
        if self.unpack_small > self.unpack_bytes:
            raise ValueError("unpack_small: no more than unpack_bytes")

    @property
    def store_patience(self) -> StorePatience:
        return StorePatience(
            self.store_timeout, self.store_attempts, Backoff(initial=self.store_retry_min, cap=self.store_retry_max)
        )

    @property
    def store_tries(self) -> StoreTries:
        return StoreTries(
            self.object_connect_timeout,
            self.object_retries,
            Backoff(initial=self.object_retry_min, cap=self.object_retry_max),
        )

    @property
    def unpacking(self) -> UnpackLimits:
        return UnpackLimits(self.unpack_bytes, self.unpack_small, self.unpack_slice)

    @property
    def calls(self) -> CallLimits:
        """What callers over gRPC may take."""
        return CallLimits(
            forward=self.forward,
            fetch_wait=self.fetch_wait,
            lag_timeout=self.lag_timeout,
            stream_wait=self.stream_wait,
            tail_patience=self.tail_patience,
            stream_bytes=self.stream_bytes,
            tail_pages=self.tail_pages,
            tail_page_bytes=self.tail_page_bytes,
            tail_page_records=self.tail_page_records,
            answer_most=self.answer_most,
            edge_page_bytes=self.edge_page_bytes,
            stream_window=self.stream_window,
        )

    @property
    def forward(self) -> ForwardLimits:
        """How the leaders of partitions are reached."""
        return ForwardLimits(self.forward_timeout, Backoff(initial=self.forward_retry_min, cap=self.forward_retry_max))

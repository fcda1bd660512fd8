"""Settings of the log in an agent with the role `log`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate_agent.log.answer_memory import DEFAULT_BYTES
from headgate_agent.log.answers import DEFAULT_STALLED
from headgate_agent.log.wal_files import DEFAULT_SPARES
from headgate_common.config import Bytes, Seconds, setting


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
    object_attempts: int = setting(4, "How often a read of the object store is tried.", minimum=1)
    uploads: int = setting(16, "Segments that are uploaded at once.", minimum=1)
    reads: int = setting(64, "Reads of the object store at once.", minimum=1)
    read_timeout: Seconds = setting(
        20.0,
        "How long one read of segments for a client may take, attempts and the list of segments included; shorter than "
        "clients wait for an answer. It is then told to ask again.",
        minimum=0.1,
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
    partition_unflushed_bytes: Bytes = setting(64 * 2**20, "The same for one partition.", minimum=2**20)
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
    answer_stalled: Seconds = setting(
        DEFAULT_STALLED,
        "A caller that takes longer for one part of a stream of records is cut off when others wait for its memory.",
        minimum=0.1,
    )
    staged_bytes: Bytes = setting(
        32 * 2**20,
        "Memory for stages of OBJECT edges that are not committed yet, so that readers who keep up find them; others "
        "are read from the object store.",
        minimum=0,
    )
    partition_producers: int = setting(
        10_000,
        "Idempotent producers that a partition remembers; the one that was silent longest goes.",
        minimum=1,
        maximum=10_000,
    )
    threads: int = setting(2, "Threads that compress and unpack blocks.", minimum=1)
    reserve_ahead: int = setting(
        1_000_000,
        "Offsets that the leader of a WAL partition reserves at once; a lost disk leaves a hole of so many.",
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
    orphan_interval: Seconds = setting(3600.0, "How often objects that no topic knows are looked for.", minimum=0.1)
    orphan_grace: Seconds = setting(
        3600.0,
        "How long such an object must have been unknown to be deleted, by the monotonic clock of the agent that looks; "
        "a commit may still be on its way. What a crash left unfinished in a folder goes after the same time.",
        minimum=0.0,
    )

"""The log of an agent process, put together: disks, stores, threads and tasks at the production edge."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from headgate_agent.log.answer_memory import AnswerMemory
from headgate_agent.log.answers import Answers
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.config import LogConfig
from headgate_agent.log.contract import PartitionSettings
from headgate_agent.log.disk_cache import DiskCache
from headgate_agent.log.guarded_objects import GuardedObjects
from headgate_agent.log.local_objects import LocalObjects
from headgate_agent.log.metadata import LogCatalog
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import Objects
from headgate_agent.log.remote_objects import SCHEMES, remote_objects
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.tail import Memory
from headgate_agent.log.unpacking import Unpacking
from headgate_agent.log.upkeep import Upkeep, UpkeepSettings
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal
from headgate_agent.log.wal_files import DiskFiles
from headgate_agent.member import Member
from headgate_agent.work import Threads
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.config import ConfigError
from headgate_common.ids import Ids
from headgate_common.metrics import counter, gauge


@dataclass(frozen=True, slots=True)
class AgentLog:
    """A log that is open. `close` it after nothing more is asked of it."""

    broker: Broker
    view: CatalogView
    upkeep: Upkeep
    # For what is written, and for what is read.
    work: Threads
    reading: Threads
    files: DiskFiles
    # What its callers over gRPC have fetched and not taken yet.
    answers: Answers

    async def close(self) -> None:
        await self.broker.close()
        self.files.close()
        self.work.close()
        self.reading.close()


async def open_log(
    config: LogConfig,
    data: Path,
    objects: GuardedObjects,
    *,
    name: str,
    volume_id: str,
    member: Member,
    metrics: LogMetrics,
    clock: Clock,
    ids: Ids,
    source: random.Random,
    backoff: Backoff,
) -> AgentLog:
    """Recovers the write-ahead log and makes everything ready; the caller runs view, broker and upkeep."""
    cached = config.disk_cache and urlparse(config.object_store).scheme in ("s3", "gs", "az")
    disk = DiskCache(data / "cache", config.disk_cache) if cached else None
    if disk is not None:
        await disk.open()
    # Apart: what readers look into never holds up what is acknowledged.
    work, reading = Threads(config.threads, "log"), Threads(config.read_threads, "log-read")
    cache = BlockCache(config.block_cache)
    files = DiskFiles(data / "wal", spares=config.wal_spare_files)
    world = World(
        wal=Wal(files, file_bytes=config.wal_file_bytes),
        objects=objects,
        reader=SegmentReader(objects, cache, disk=disk, work=reading),
        clock=clock,
        ids=ids,
        source=source,
        memory=Memory(config.tail_bytes, config.unflushed_bytes, config.staged_bytes),
        work=work,
        metrics=metrics,
        unpacking=Unpacking(reading, config.unpacking),
    )
    view = CatalogView(member.coordinators, clock=clock, source=source, backoff=backoff, silence=config.view_silence)
    broker = Broker(
        name,
        volume_id,
        member=member,
        view=view,
        catalog=LogCatalog(member.coordinators, source=source, backoff=backoff),
        world=world,
        settings=BrokerSettings(
            limits=PartitionSettings(
                reserve_ahead=config.reserve_ahead,
                max_unflushed_bytes=config.partition_unflushed_bytes,
                hold_bytes=config.edge_hold_bytes,
                max_producers=config.partition_producers,
                after_max=config.timestamp_after_max,
            ),
            relook=config.relook,
            guard=config.guard,
            fetch_reads=config.fetch_reads,
            read_segments=config.read_segments,
            acquire_partitions=config.acquire_partitions,
            commit_stages=config.commit_stages,
            upload_backoff=Backoff(initial=config.upload_retry_min, cap=config.upload_retry_max),
            retry=config.retry,
            staged_bytes=config.staged_bytes,
            doubt=config.doubt,
            read_timeout=config.read_timeout,
            transfer_timeout=config.transfer_timeout,
            leave_timeout=config.leave_timeout,
        ),
    )
    await broker.open()
    answers = Answers(AnswerMemory(config.answer_bytes, config.answer_least), clock, config.answer_stalled)
    _publish(metrics, broker, cache, disk, answers.memory)
    return AgentLog(broker, view, Upkeep(broker, _upkeep(config)), work, reading, files, answers)


def guarded_store(config: LogConfig, data: Path, metrics: LogMetrics, source: random.Random) -> GuardedObjects:
    """The store that is configured, within its bounds."""
    return GuardedObjects(
        object_store(config, data),
        metrics,
        uploads=config.uploads,
        reads=config.reads,
        timeout=config.object_timeout,
        source=source,
        attempts=config.object_attempts,
    )


def object_store(config: LogConfig, data: Path) -> Objects:
    """The store that is configured."""
    where = config.object_store
    scheme = urlparse(where).scheme
    if scheme in SCHEMES:
        try:
            return remote_objects(where, config.object_options, config.object_timeout, config.store_tries)
        except ValueError as error:
            raise ConfigError(f"log.object_store: {error}") from error
    if scheme not in ("", "file"):
        raise ConfigError(
            f"log.object_store = {where!r}: expected a folder or one of {', '.join(f'{one}://' for one in SCHEMES)}"
        )
    return LocalObjects(local_folder(where, data), unfinished_grace=config.orphan_grace)


def local_folder(where: str, data: Path) -> Path:
    """The folder that a store is which is none of `SCHEMES`."""
    if not where:
        return data / "objects"
    return Path(unquote(urlparse(where).path)) if urlparse(where).scheme == "file" else Path(where).expanduser()


def _upkeep(config: LogConfig) -> UpkeepSettings:
    return UpkeepSettings(
        retention_interval=config.retention_interval,
        trim_interval=config.trim_interval,
        wal_interval=config.wal_interval,
        wal_files=config.wal_files,
        merge_interval=config.merge_interval,
        merge_below=config.merge_below,
        merge_least=config.merge_least,
        merge_most=config.merge_most,
        delete_grace=config.delete_grace,
        delete_interval=config.delete_interval,
        delete_failures=config.delete_failures,
        orphan_interval=config.orphan_interval,
        orphan_grace=config.orphan_grace,
    )


def _publish(
    metrics: LogMetrics, broker: Broker, cache: BlockCache, disk: DiskCache | None, answers: AnswerMemory
) -> None:
    """What can be read off at any moment."""
    registry, world = metrics.registry, broker.world
    gauge(registry, "headgate_log_partitions_led", "Partitions that this agent leads.", lambda: len(broker.led))
    gauge(
        registry,
        "headgate_log_unflushed_bytes",
        "Bytes of records in memory that no segment holds yet.",
        lambda: world.memory.unsettled,
    )
    gauge(
        registry,
        "headgate_log_tail_bytes",
        "Bytes of records in memory that segments hold too.",
        lambda: world.memory.kept,
    )
    gauge(
        registry,
        "headgate_log_staged_bytes",
        "Bytes in memory of stages of WAL edges that are not committed yet.",
        lambda: world.memory.staged,
    )
    gauge(
        registry,
        "headgate_log_answer_bytes",
        "Bytes of fetched records that callers over gRPC have not taken yet.",
        lambda: answers.used,
    )
    gauge(
        registry,
        "headgate_log_view_age_seconds",
        "Time since the catalog's watch was last heard.",
        lambda: broker.view.age,
    )
    counter(registry, "headgate_log_wal_syncs", "Calls of fdatasync.", lambda: world.wal.writes)
    counter(registry, "headgate_log_wal_bytes", "Bytes written ahead.", lambda: world.wal.bytes_written)
    counter(
        registry,
        "headgate_log_block_cache",
        "Blocks that were asked for.",
        lambda: {
            ("memory", "hit"): cache.hits,
            ("memory", "miss"): cache.misses,
            ("disk", "hit"): disk.hits if disk is not None else 0,
            ("disk", "miss"): disk.misses if disk is not None else 0,
        },
        ("cache", "outcome"),
    )

"""headgate-agent: wiring only."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlparse

from headgate_agent.config import AgentConfig
from headgate_agent.coordinators import Coordinators
from headgate_agent.data import CatalogMark, own, volume_id
from headgate_agent.engines import Engines, EngineTimings
from headgate_agent.errors import JOURNAL_UNAVAILABLE, REASONS
from headgate_agent.fragments.checkpoints import FOLDER, Checkpoints, checkpoint_uri, s3_access
from headgate_agent.fragments.journal import FileJournal
from headgate_agent.fragments.leftovers import Leftovers, in_folder, in_objects
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.result_service import ResultService
from headgate_agent.fragments.runner import Runner, SimulatedRunner
from headgate_agent.fragments.running import AgentRunner, warm_up
from headgate_agent.fragments.service import FragmentService
from headgate_agent.fragments.sinks.result import Results
from headgate_agent.fragments.sinks.topic import TopicLog
from headgate_agent.fragments.sinks.topic_log import with_log
from headgate_agent.fragments.sources.build import Surroundings
from headgate_agent.fragments.sources.samples import Vitals
from headgate_agent.fragments.starts import Starts, StartTimings
from headgate_agent.fragments.tally import Tally
from headgate_agent.groups.groups import Groups
from headgate_agent.kafka.port import KafkaPort, asking, make_groups, make_offsets, tls_context
from headgate_agent.leaving import Leaving, LeavingLog
from headgate_agent.load import Load
from headgate_agent.log.assembly import AgentLog, guarded_store, open_log
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.guarded_objects import GuardedObjects
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import Objects
from headgate_agent.log.service import LogService
from headgate_agent.log.store_identity import LABEL, catalog_of, claim
from headgate_agent.log.store_identity import identity as identity_of
from headgate_agent.member import Identity, Member
from headgate_agent.work import Threads
from headgate_common.arguments import Flag
from headgate_common.backoff import Backoff
from headgate_common.config import ConfigError
from headgate_common.dispatch import Service
from headgate_common.errors import HeadgateError
from headgate_common.server import App, Runtime, run_server
from headgate_common.tls import check_listen

FLAGS = (
    Flag("--coordinator", "coordinator", "ADDRESSES", "addresses of the coordinators, separated by commas"),
    Flag("--name", "name", "NAME", "the agent's name"),
    Flag("--data", "data", "FOLDER", "where it keeps what must survive a crash"),
    Flag(
        "--adopt-catalog",
        "adopt_catalog",
        None,
        "give the data folder and the object store, which are of another catalog, to the coordinator's, for one start",
    ),
    Flag("--slots", "slots", "NUMBER", "how many slots it offers"),
    Flag("--roles", "roles", "ROLES", "log, fragments"),
    Flag("--object-store", "log.object_store", "WHERE", "where segments are: a folder, s3://, gs://, az://, memory://"),
    Flag("--kafka-listen", "kafka.listen", "ADDRESS", "address for Kafka clients; empty: none"),
    Flag("--kafka-advertise", "kafka.advertise", "ADDRESS", "address that Kafka clients are told"),
    Flag("--engine", "engine", "ADDRESSES", "addresses of the engines that run compute fragments; or `simulated`"),
)


@asynccontextmanager
async def build(config: AgentConfig, runtime: Runtime) -> AsyncIterator[App]:
    with own(config.data):
        journal = FileJournal(config.data / "fragments.journal")
        fragments = _Fragments(config, runtime)
        registry = FragmentRegistry(
            incarnation=runtime.ids.uid("process"), runner=fragments.runner, journal=journal, clock=runtime.clock
        )
        name = config.name.lower()
        load = Load(runtime.clock, lambda: registry.backlog)
        service = FragmentService(registry, name, load)
        fragments.vitals = Vitals(
            name, load, lambda: registry.slots_used, lambda: registry.fragments, tally=fragments.tally
        )
        port = await _kafka(config, runtime)
        leads = "log" in config.roles
        metrics = LogMetrics(runtime.registry)
        objects = guarded_store(config.log, config.data, metrics, runtime.source) if leads else None
        store = (
            await identity_of(objects, runtime.ids, runtime.source, config.log.store_patience)
            if objects is not None
            else ""
        )
        identity = Identity(
            name=name,
            address=runtime.address,
            incarnation=registry.incarnation,
            slots=config.slots,
            zone=config.zone,
            group=config.group,
            labels={**config.labels, **({LABEL: store} if store else {})},
            roles=config.roles,
            volume_id=volume_id(config.data, runtime.ids),
            has_engine=bool(config.engine),
            kafka_address=port.advertised if port is not None else "",
            peers=tuple(dict.fromkeys(config.peers)),
        )
        member = Member(
            identity,
            registry,
            transport=runtime.transport,
            coordinators=config.coordinator,
            clock=runtime.clock,
            source=runtime.source,
            timeout=config.timings.call_timeout,
            backoff=_backoff(config),
            mark=CatalogMark(
                config.data,
                await catalog_of(objects) if objects is not None and store else "",
                adopt=config.adopt_catalog,
            ),
        )
        fragments.member = member
        services: list[Service] = [service, ResultService(fragments.results, fragments.work)]
        log = await _open_log(config, runtime, member, identity, objects, metrics) if objects is not None else None
        if log is not None:
            groups = _groups(config, runtime, member, log, port, name)
            services.append(_log_service(config, runtime, log, groups, name))
            fragments.topics = _topics(config, runtime, member, log, groups, name)
            services.append(EdgeService(log.broker, runtime.clock, log.answers, config.log.calls))
            fragments.log = log
        await registry.open()
        membership = runtime.supervise(member.run(), "membership")
        runtime.supervise(_watch(journal), "journal")
        leftovers = _leftovers(config, runtime, member, fragments, objects)
        runtime.supervise(_follow_catalog(config, runtime, member, log, objects, leftovers), "catalog")

        leaving_log = LeavingLog(log.broker, groups, config.log.leave_timeout) if log is not None else None
        leave = Leaving(registry, service, member, membership, leaving_log)

        def unready() -> Sequence[str]:
            troubles = (member.trouble, log.broker.trouble if log is not None else "")
            return tuple(trouble for trouble in troubles if trouble)

        yield App(services=services, unready=unready, draining=leave)
        await registry.close()
        if port is not None:
            await port.close()
        if log is not None:
            await groups.close()
            await log.close()
        await journal.close()
        fragments.close()


class _Fragments:
    """The runner of fragments, and what it needs; `log` is set once it is open, `vitals` and `member` before anything
    runs."""

    def __init__(self, config: AgentConfig, runtime: Runtime) -> None:
        self.log: AgentLog | None = None
        self.results = Results()
        self.topics: TopicLog | None = None
        self.tally = Tally()
        self.vitals: Vitals | None = None
        self.member: Member | None = None
        self.work = Threads(config.fragments.threads, "fragments")
        self._sink_work = Threads(config.fragments.threads, "sinks")
        # Brokers that do not answer keep nobody from work but those who ask such brokers too.
        self._asking = Threads(config.fragments.threads, "brokers")
        self.runner: Runner = SimulatedRunner() if config.simulated else self._runner(config, runtime)

    def close(self) -> None:
        self.work.close()
        self._sink_work.close()
        self._asking.close()

    def _coordinators(self) -> Coordinators:
        assert self.member is not None, "set before anything runs"
        return self.member.coordinators

    def _runner(self, config: AgentConfig, runtime: Runtime) -> AgentRunner:
        timings = config.timings
        engines = Engines(
            config.engine,
            runtime.transport,
            clock=runtime.clock,
            source=runtime.source,
            timings=EngineTimings(
                keep_alive=timings.engine_keep_alive,
                patience=timings.engine_patience,
                call_timeout=timings.call_timeout,
                start_timeout=timings.engine_start,
                topic_appears=timings.topic_appears,
                retry=_backoff(config),
            ),
        )
        runtime.supervise(engines.run(), "engines")
        runtime.supervise(self.work.run(warm_up), "warm-up")
        uri = checkpoint_uri(config.checkpoints, config.log.object_store, config.data)
        return AgentRunner(
            around=Surroundings(
                config.fragments,
                runtime.clock,
                self.work,
                runtime.source,
                tally=self.tally,
                vitals=lambda: self.vitals,
            ),
            engines=engines,
            checkpoints=Checkpoints(uri, engines, self.work, s3_access(uri, config.log.object_options, os.environ)),
            state=config.data / "sinks",
            broker=lambda: self.log.broker if self.log is not None else None,
            results=self.results,
            sink_work=self._sink_work,
            topics=lambda: self.topics,
            starts=Starts(
                topics=lambda: self.topics,
                coordinators=self._coordinators,
                blocking=self._asking,
                clock=runtime.clock,
                source=runtime.source,
                timings=StartTimings(timings.brokers, timings.topic_appears, _backoff(config)),
            ),
        )


def _leftovers(
    config: AgentConfig, runtime: Runtime, member: Member, fragments: _Fragments, objects: Objects | None
) -> Leftovers | None:
    """Checkpoints that nobody needs, where they are in the object store and this agent can remove them."""
    runner = fragments.runner
    if not isinstance(runner, AgentRunner) or not config.engine or config.checkpoints:
        return None
    scheme = urlparse(runner.checkpoints.uri).scheme
    if scheme in ("", "file"):
        find = in_folder(Path(runner.checkpoints.uri), fragments.work)
    elif objects is not None:
        find = in_objects(objects, FOLDER)
    else:
        return None
    return Leftovers(
        find,
        runner.checkpoints,
        member.coordinators,
        clock=runtime.clock,
        source=runtime.source,
        interval=config.fragments.leftover_interval,
        grace=config.fragments.leftover_grace,
    )


async def _kafka(config: AgentConfig, runtime: Runtime) -> KafkaPort | None:
    """Takes the port for Kafka clients, whose address the agent registers with; it answers once there is a log."""
    if "log" not in config.roles or not config.kafka.listen:
        return None
    check_listen(config.kafka.listen, config.server.tls, insecure=config.server.insecure)
    port = KafkaPort(config.kafka, runtime.clock)
    try:
        await port.bind(tls_context(config.server.tls))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot listen on {config.kafka.listen} for Kafka clients: {error}; choose another address with "
            "--kafka-listen, or none with --kafka-listen ''"
        ) from error
    runtime.supervise(port.run(), "kafka port")
    return port


async def _open_log(
    config: AgentConfig,
    runtime: Runtime,
    member: Member,
    identity: Identity,
    objects: GuardedObjects,
    metrics: LogMetrics,
) -> AgentLog:
    return await open_log(
        config.log,
        config.data,
        objects,
        name=identity.name,
        volume_id=identity.volume_id,
        member=member,
        metrics=metrics,
        clock=runtime.clock,
        ids=runtime.ids,
        source=runtime.source,
        backoff=_backoff(config),
    )


async def _follow_catalog(
    config: AgentConfig,
    runtime: Runtime,
    member: Member,
    log: AgentLog | None,
    objects: GuardedObjects | None,
    leftovers: Leftovers | None,
) -> None:
    """Begins with what lets go of data that the catalog does not know, once it is certain that it is the data's own:
    with what is in the data folder when the agent has joined, with what is in the object store when that has answered.
    The folder is this process's own; the store is looked at again and again, and its loss ends the process.
    """
    uid = await member.joined()
    if log is not None:
        runtime.supervise(log.view.run(), "view")
        runtime.supervise(log.broker.run(), "log")
    if objects is not None and uid:
        await claim(objects, uid, runtime.source, adopt=config.adopt_catalog, patience=config.log.store_patience)
    if log is not None:
        runtime.supervise(log.upkeep.run(uid), "upkeep")
    if leftovers is not None:
        runtime.supervise(leftovers.run(), "leftovers")


def _groups(
    config: AgentConfig, runtime: Runtime, member: Member, log: AgentLog, port: KafkaPort | None, name: str
) -> Groups:
    """Consumer groups, and the port for Kafka clients where there is one."""
    groups: Groups = make_groups(
        name,
        log.view,
        member.coordinators,
        log.broker.certainty,
        config.kafka,
        clock=runtime.clock,
        source=runtime.source,
    )
    runtime.supervise(groups.run(), "groups")
    if port is not None:
        port.start(
            name,
            log.broker,
            groups,
            member.coordinators,
            ids=runtime.ids,
            source=runtime.source,
            registry=runtime.registry,
        )
    return groups


def _log_service(config: AgentConfig, runtime: Runtime, log: AgentLog, groups: Groups, name: str) -> LogService:
    return LogService(
        log.broker,
        transport=runtime.transport,
        clock=runtime.clock,
        source=runtime.source,
        name=name,
        groups=make_offsets(name, groups, runtime.transport, config.kafka),
        work=log.work,
        unpacking=log.broker.world.unpacking,
        answers=log.answers,
        limits=config.log.calls,
    )


def _topics(
    config: AgentConfig, runtime: Runtime, member: Member, log: AgentLog, groups: Groups, name: str
) -> TopicLog:
    """The log as TOPIC sinks see it."""
    return with_log(
        log.broker,
        make_offsets(name, groups, runtime.transport, config.kafka),
        name,
        asking(member.coordinators, runtime.clock, runtime.source, config.kafka),
        transport=runtime.transport,
        clock=runtime.clock,
        source=runtime.source,
        config=config.fragments,
        limits=config.log.forward,
    )


def _backoff(config: AgentConfig) -> Backoff:
    return Backoff(initial=config.timings.retry_min, cap=config.timings.retry_max)


async def _watch(journal: FileJournal) -> None:
    """A journal that cannot be trusted ends the process: the next one begins from what is on the disk."""
    await journal.broken.wait()
    raise HeadgateError(JOURNAL_UNAVAILABLE, "the journal failed; the process ends, to begin again from the disk")


def main() -> int:
    return run_server(
        "agent",
        AgentConfig,
        build,
        summary="Leads topics and runs fragments of queries for a coordinator.",
        flags=FLAGS,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())

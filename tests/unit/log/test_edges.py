"""Two-step writes: what a commit names becomes visible at once and once; what it does not name never does."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from headgate_agent.log.contract import Durability, NotAccepted, PartitionKey
from headgate_agent.log.partition import Partition
from headgate_agent.log.records import PlainRecord, pack, pack_in_place, unpack_batches
from headgate_agent.log.tail import Memory
from headgate_agent.log.wal import Wal, WalRefused
from headgate_agent.log.wal_edges import WalEdges, replay
from headgate_agent.log.writers import END_KEY, StaleWriter, UnknownStage
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from tests.unit.log.test_partition import FAST, Catalog, Files, Objects, Switch

KEYS = [PartitionKey("edge", 0), PartitionKey("edge", 1), PartitionKey("errors", 0)]
SLOW = replace(FAST, segment_age=1000.0, durability=Durability.WAL)


def batch(*values: str) -> bytes:
    return b"".join(bytes(one) for value in values for one in pack([PlainRecord(None, value.encode(), 1)], 1 << 20))


class Agent:
    """An agent that leads three partitions; `start` is what it does after a crash, with what is on its disk."""

    def __init__(self) -> None:
        self.files, self.objects = Files(), Objects()
        self.catalogs = {key: Catalog() for key in KEYS}
        self.grant = Switch()
        # What its partitions share; each has one of its own if there is none.
        self.memory: Memory | None = None

    async def start(self) -> WalEdges:
        self.wal = Wal(self.files, file_bytes=2_000)
        replayed = replay(await self.wal.recover())
        self.partitions = {key: self._lead(key) for key in KEYS}
        for key, partition in self.partitions.items():
            partition.recover(replayed.held.get(key, ()))
        self.edges = WalEdges(self.wal, self.partitions.__getitem__)
        self.edges.restore(replayed)
        return self.edges

    def _lead(self, key: PartitionKey) -> Partition:
        return Partition(
            key,
            f"{key.topic_uid}/{key.index}",
            self.catalogs[key].grant(),
            SLOW,
            wal=self.wal,
            objects=self.objects,
            metadata=self.catalogs[key],
            grant=self.grant,
            clock=SystemClock(),
            ids=RandomIds(random.Random(1)),
            source=random.Random(1),
            memory=self.memory,
        )

    def visible(self, key: PartitionKey) -> list[str]:
        found = self.partitions[key].read(self.partitions[key].log_start, 1 << 20) or []
        records = list(unpack_batches(b"".join(found)))
        assert [record.offset for record in records] == list(range(len(records)))
        return ["END" if record.key == END_KEY else (record.value or b"").decode() for record in records]


@pytest.fixture
async def agent() -> Agent:
    made = Agent()
    await made.start()
    return made


async def test_a_commit_makes_all_its_stages_visible_at_once_in_its_order(agent: Agent) -> None:
    edges = agent.edges
    assert (await edges.open_writer("f", 1, KEYS)).batch_id == -1
    await edges.stage("f", 1, "b", KEYS[0], batch("second"))
    await edges.stage("f", 1, "a", KEYS[0], batch("first"))
    await edges.stage("f", 1, "c", KEYS[1], batch("other", "partition"))
    await edges.stage("f", 1, "e", KEYS[2], batch("bad row"))
    assert [agent.visible(key) for key in KEYS] == [[], [], []]
    assert await edges.commit("f", 1, 0, ["a", "b", "c", "e"]) is True
    assert [agent.visible(key) for key in KEYS] == [["first", "second"], ["other", "partition"], ["bad row"]]


async def test_a_batch_is_applied_once_however_often_it_is_committed(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "a", KEYS[0], batch("x"))
    await edges.commit("f", 1, 7, ["a"])
    assert await edges.commit("f", 1, 7, ["a"]) is False
    await edges.open_writer("f", 2, KEYS)
    await edges.stage("f", 2, "again", KEYS[0], batch("x"))
    assert await edges.commit("f", 2, 7, ["again"]) is False
    assert agent.visible(KEYS[0]) == ["x"]


async def test_a_run_that_was_shut_out_neither_stages_nor_commits_also_after_a_crash(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "old", KEYS[0], batch("old"))
    await edges.open_writer("f", 2, KEYS)
    for restarted in (edges, await agent.start()):
        with pytest.raises(StaleWriter):
            await restarted.stage("f", 1, "new", KEYS[0], batch("new"))
        with pytest.raises(StaleWriter):
            await restarted.commit("f", 1, 0, ["old"])
        with pytest.raises(StaleWriter):
            await restarted.open_writer("f", 1, KEYS)
        with pytest.raises(UnknownStage):
            await restarted.commit("f", 2, 0, ["old"])
    assert agent.visible(KEYS[0]) == []


async def test_stages_and_commits_survive_a_crash_and_what_no_commit_names_disappears(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    for number in range(20):
        await edges.stage("f", 1, f"s{number}", KEYS[number % 2], batch(f"row {number} " + "x" * 300))
        await edges.stage("f", 1, f"lost{number}", KEYS[number % 2], batch("of a task that lost"))
        await edges.commit("f", 1, number, [f"s{number}"])
    await edges.stage("f", 1, "pending", KEYS[0], batch("pending"))
    before = [agent.visible(key) for key in KEYS]
    restarted = await agent.start()
    assert [agent.visible(key) for key in KEYS] == before
    writer = await restarted.open_writer("f", 1, KEYS)
    assert writer.batch_id == 19
    await restarted.commit("f", 1, 20, ["pending"])
    assert agent.visible(KEYS[0])[-1] == "pending"
    assert "of a task that lost" not in agent.visible(KEYS[0])


async def test_a_failed_write_leaves_nothing_behind(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "a", KEYS[0], batch("a"))
    await edges.stage("f", 1, "b", KEYS[1], batch("b"))
    agent.files.fail = 1
    with pytest.raises(WalRefused):
        await edges.commit("f", 1, 0, ["a", "b"])
    assert [agent.visible(key) for key in KEYS[:2]] == [[], []]
    assert await edges.commit("f", 1, 0, ["a", "b"]) is True
    assert [agent.visible(key) for key in KEYS[:2]] == [["a"], ["b"]]


async def test_all_or_none_where_one_partition_refuses(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "a", KEYS[0], batch("a"))
    await edges.stage("f", 1, "b", KEYS[1], batch("b"))
    agent.partitions[KEYS[1]].seal("being handed over")
    with pytest.raises(Exception, match="being handed over"):
        await edges.commit("f", 1, 0, ["a", "b"])
    agent.partitions[KEYS[1]].unseal()
    assert agent.visible(KEYS[0]) == []
    assert await edges.commit("f", 1, 0, ["a", "b"]) is True
    assert agent.visible(KEYS[0]) == ["a"]


async def test_a_stage_may_be_repeated_and_its_id_means_one_thing(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "a", KEYS[0], batch("a"))
    later = b"".join(bytes(one) for one in pack([PlainRecord(None, b"a", 2)], 1 << 20))
    await edges.stage("f", 1, "a", KEYS[0], later)
    with pytest.raises(NotAccepted):
        await edges.stage("f", 1, "a", KEYS[0], batch("b"))
    with pytest.raises(UnknownStage):
        await edges.commit("f", 1, 0, ["nothing"])
    await edges.open_writer("g", 1, KEYS)
    with pytest.raises(UnknownStage):
        await edges.commit("g", 1, 0, ["a"])


async def test_rows_that_were_packed_in_place_are_stored_as_they_are_and_found_again(agent: Agent) -> None:
    values = [random.Random(number).randbytes(600_000) for number in range(3)]
    await agent.edges.open_writer("s", 1, KEYS[:1])
    for number, value in enumerate(values):

        def write(target: memoryview, value: bytes = value) -> None:
            target[:] = value

        made = pack_in_place(len(value), write, 1)
        await agent.edges.append("s", 1, [(KEYS[0], made)], b"%d" % number)
        assert (agent.partitions[KEYS[0]].read(number, 1) or [])[0] is made, "it is not copied"
    before = b"".join(agent.partitions[KEYS[0]].read(0, 1 << 30) or [])
    assert [(one.offset, one.value) for one in unpack_batches(before)] == list(enumerate(values))
    await agent.start()
    assert b"".join(agent.partitions[KEYS[0]].read(0, 1 << 30) or []) == before


async def test_rows_of_a_source_and_its_position_are_one_append(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("s", 1, KEYS[:1])
    for number in range(5):
        await edges.append("s", 1, [(KEYS[0], batch(f"row {number}"))], b"%d" % number)
    agent.files.fail = 1
    with pytest.raises(WalRefused):
        await edges.append("s", 1, [(KEYS[0], batch("row 5"))], b"5")
    restarted = await agent.start()
    assert (await restarted.open_writer("s", 2, KEYS[:1])).position == b"4"
    assert agent.visible(KEYS[0]) == [f"row {number}" for number in range(5)]
    await restarted.append("s", 2, [], b"end", ends=KEYS[:1])
    assert agent.visible(KEYS[0])[-1] == "END"
    assert restarted.ended("edge") and (await agent.start()).ended("edge")


async def test_an_end_is_in_every_partition_and_is_committed_once(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.commit("f", 1, 0, [], ends=KEYS[:2])
    assert await edges.commit("f", 1, 0, [], ends=KEYS[:2]) is False
    assert [agent.visible(key) for key in KEYS] == [["END"], ["END"], []]


async def test_files_go_when_segments_hold_what_was_in_them_and_writers_are_carried_over(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 3, KEYS)
    for number in range(30):
        await edges.stage("f", 3, f"s{number}", KEYS[0], batch("x" * 300))
        await edges.commit("f", 3, number, [f"s{number}"])
    await agent.partitions[KEYS[0]].flush()
    assert agent.partitions[KEYS[0]].oldest_wal_file is None and edges.oldest_wal_file is None
    await edges.carry_over(agent.wal.current_file)
    await agent.wal.remove_before(agent.wal.current_file)
    assert len(agent.files.files) <= 2
    restarted = await agent.start()
    assert (await restarted.open_writer("f", 3, KEYS)).batch_id == 29


async def test_what_belongs_to_topics_that_are_gone_is_forgotten(agent: Agent) -> None:
    edges = agent.edges
    await edges.open_writer("f", 1, KEYS)
    await edges.stage("f", 1, "a", KEYS[0], batch("a"))
    edges.forget(lambda uid: uid == "errors")
    assert edges.writers and edges.stages
    edges.forget(lambda uid: False)
    assert not edges.writers and not edges.stages


async def test_commits_of_many_writers_do_not_mix(agent: Agent) -> None:
    edges = agent.edges

    async def write(fragment: str) -> None:
        await edges.open_writer(fragment, 1, KEYS)
        for number in range(10):
            await edges.stage(fragment, 1, f"{fragment}{number}", KEYS[0], batch(f"{fragment}:{number}"))
            await edges.commit(fragment, 1, number, [f"{fragment}{number}"])

    await asyncio.gather(*(write(f"w{number}") for number in range(5)))
    before = agent.visible(KEYS[0])
    assert len(before) == 50
    for number in range(5):
        own = [value for value in before if value.startswith(f"w{number}:")]
        assert own == [f"w{number}:{n}" for n in range(10)]
    await agent.start()
    assert agent.visible(KEYS[0]) == before

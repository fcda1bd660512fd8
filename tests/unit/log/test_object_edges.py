"""OBJECT edges: what was committed is there once, whoever leads, whatever crashed, and with no disk left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headgate.log import v1 as api
from headgate_agent.log.contract import NotAccepted, NotLeader, PartitionKey
from headgate_agent.log.edges import StaleWriter, UnknownStage
from headgate_agent.log.stages import StageTime, may_be_committed, name_of, read_name
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.tx import Tx
from tests.integration.catalog import log_kit
from tests.unit.log.edge_bench import Crash, EdgeBench, Leader, Steps, rows


@pytest.fixture
async def bench() -> AsyncIterator[EdgeBench]:
    made = await EdgeBench().start()
    yield made
    made.close()


async def all_rows(bench: EdgeBench, leader: Leader) -> list[list[str]]:
    return [await leader.rows(key) for key in bench.keys]


async def test_a_commit_shows_all_its_stages_at_once_in_its_order_without_another_upload(bench: EdgeBench) -> None:
    leader = await bench.lead()
    edges, keys = leader.edges, bench.keys
    assert (await edges.open_writer("f", 1, keys)).batch_id == -1
    await edges.stage("f", 1, "b", keys[0], rows("second", "third"))
    await edges.stage("f", 1, "a", keys[0], rows("first"))
    await edges.stage("f", 1, "c", keys[1], rows("other"))
    await edges.stage("f", 1, "e", keys[2], rows("bad row"))
    uploaded = dict(bench.objects.objects)
    assert await all_rows(bench, leader) == [[], [], []]
    assert await edges.commit("f", 1, 0, ["a", "b", "c", "e"]) is True
    assert await all_rows(bench, leader) == [["first", "second", "third"], ["other"], ["bad row"]]
    await edges.stage("f", 1, "d", keys[0], rows("fourth"))
    assert await edges.commit("f", 1, 1, ["d"]) is True
    assert await leader.rows(keys[0]) == ["first", "second", "third", "fourth"]
    assert uploaded.items() <= bench.objects.objects.items() and len(bench.objects.objects) == 5


async def test_what_was_just_committed_is_read_from_memory_and_what_had_no_room_from_the_store(
    bench: EdgeBench,
) -> None:
    leader = await bench.lead(keep_bytes=2 * len(rows("row 0")))
    key = bench.keys[0]
    await leader.edges.open_writer("f", 1, bench.keys)
    for number in range(2):
        await leader.edges.stage("f", 1, f"s{number}", key, rows(f"row {number}"))
        await leader.edges.commit("f", 1, number, [f"s{number}"])
    assert await leader.rows(key) == ["row 0", "row 1"] and leader.objects.reads == 0
    for number in range(2, 6):
        await leader.edges.stage("f", 1, f"s{number}", key, rows(f"row {number}"))
    await leader.edges.commit("f", 1, 2, [f"s{number}" for number in range(2, 6)])
    assert await leader.rows(key) == [f"row {number}" for number in range(6)] and leader.objects.reads > 0
    await leader.edges.stage("f", 1, "last", key, rows("row 6"))
    await leader.edges.commit("f", 1, 3, ["last"])
    assert await leader.rows(key) == [f"row {number}" for number in range(7)]
    assert leader.leds[key].partition.unread_bytes == 0


async def test_a_new_leader_serves_every_batch_refuses_the_old_epoch_and_applies_none_again(bench: EdgeBench) -> None:
    first = await bench.lead()
    await first.edges.open_writer("f", 3, bench.keys)
    for number in range(3):
        await first.edges.stage("f", 3, f"s{number}", bench.keys[0], rows(f"row {number}"))
        await first.edges.stage("f", 3, f"e{number}", bench.keys[2], rows(f"bad {number}"))
        await first.edges.commit("f", 3, number, [f"s{number}", f"e{number}"])
    before = await all_rows(bench, first)
    await bench.lost(first)
    second = await bench.lead()
    assert await all_rows(bench, second) == before == [["row 0", "row 1", "row 2"], [], ["bad 0", "bad 1", "bad 2"]]
    with pytest.raises(StaleWriter):
        await second.edges.open_writer("f", 2, bench.keys)
    writer = await second.edges.open_writer("f", 4, bench.keys)
    assert writer.batch_id == 2
    await second.edges.stage("f", 4, "again", bench.keys[0], rows("row 2"))
    assert await second.edges.commit("f", 4, 2, ["again"]) is False
    with pytest.raises(StaleWriter):
        await second.edges.stage("f", 3, "late", bench.keys[0], rows("late"))
    with pytest.raises(StaleWriter):
        await second.edges.commit("f", 3, 3, [])
    assert await all_rows(bench, second) == before


async def test_the_same_run_goes_on_at_a_new_leader_with_what_it_had_staged(bench: EdgeBench) -> None:
    first = await bench.lead()
    await first.edges.open_writer("f", 1, bench.keys)
    await first.edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    await first.edges.commit("f", 1, 0, ["a"])
    await first.edges.stage("f", 1, "b", bench.keys[0], rows("b", "c"))
    await first.edges.stage("f", 1, "e", bench.keys[2], rows("bad"))
    await bench.lost(first)
    second = await bench.lead()
    assert (await second.edges.require("f", 1)).batch_id == 0
    # A call whose answer was lost is repeated, at another time of day.
    await second.edges.stage("f", 1, "b", bench.keys[0], rows("b", "c", at=99))
    with pytest.raises(NotAccepted):
        await second.edges.stage("f", 1, "b", bench.keys[0], rows("something else"))
    assert await second.edges.commit("f", 1, 1, ["b", "e"]) is True
    assert await all_rows(bench, second) == [["a", "b", "c"], [], ["bad"]]


async def test_a_former_leader_can_neither_open_nor_commit(bench: EdgeBench) -> None:
    former = await bench.lead()
    await former.edges.open_writer("f", 1, bench.keys)
    await former.edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    await bench.lost(former)
    present = await bench.lead()
    with pytest.raises(NotLeader):
        await former.edges.commit("f", 1, 0, ["a"])
    with pytest.raises(NotLeader):
        await former.edges.open_writer("f", 9, bench.keys)
    assert (await present.edges.open_writer("f", 2, bench.keys)).batch_id == -1
    assert await all_rows(bench, present) == [[], [], []]


async def test_a_run_that_was_shut_out_at_another_leader_is_refused_by_the_catalog(bench: EdgeBench) -> None:
    """The leader of one of the partitions does not know yet that a later run has begun."""
    leader = await bench.lead()
    await leader.edges.open_writer("f", 1, bench.keys)
    await leader.edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    behind = await bench.take(leader.member)
    await leader.edges.open_writer("f", 2, bench.keys)
    await behind.edges.stage("f", 1, "b", bench.keys[0], rows("b"))
    with pytest.raises(StaleWriter):
        await behind.edges.commit("f", 1, 0, ["b"])
    assert await all_rows(bench, leader) == [[], [], []]


async def test_only_the_next_commit_may_name_a_stage(bench: EdgeBench) -> None:
    leader = await bench.lead()
    edges = leader.edges
    await edges.open_writer("f", 1, bench.keys)
    await edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    await edges.stage("f", 1, "lost", bench.keys[0], rows("of a task that lost"))
    await edges.commit("f", 1, 0, ["a"])
    for who in (leader, await bench.take(leader.member)):
        with pytest.raises(UnknownStage):
            await who.edges.commit("f", 1, 1, ["lost"])
        with pytest.raises(UnknownStage):
            await who.edges.commit("f", 1, 1, ["a"])
    assert len(leader.removed) == 1 and leader.removed[0].startswith(f"{bench.keys[0].topic_uid}/0/stages-f/")
    await edges.stage("f", 1, "b", bench.keys[0], rows("b"))
    await edges.open_writer("f", 2, bench.keys)
    with pytest.raises(UnknownStage):
        await edges.commit("f", 2, 1, ["b"])
    assert len(leader.removed) == 2
    assert await leader.rows(bench.keys[0]) == ["a"]


async def test_one_durability_for_everything_that_a_writer_opens(bench: EdgeBench) -> None:
    bench.topics.append(await log_kit.topic(bench.store, "on-disk", 1, durability=log_kit.WAL))
    leader = await bench.lead()
    on_disk = next(key for key in leader.leds if key.topic_uid == bench.topics[-1].uid)
    with pytest.raises(NotAccepted, match="one durability"):
        await leader.edges.open_writer("f", 1, [bench.keys[0], on_disk])
    await leader.edges.open_writer("g", 1, [on_disk])
    await leader.edges.append("g", 1, [(on_disk, rows("row"))], b"here")
    assert await leader.rows(on_disk) == ["row"]


async def test_rows_of_a_source_its_errors_and_its_position_are_one_commit(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_writer("s", 1, bench.keys)
    await leader.edges.append("s", 1, [(bench.keys[0], rows("a")), (bench.keys[2], rows("bad"))], b"1")
    await leader.edges.append("s", 1, [], b"2", ends=bench.keys[:1])
    await bench.lost(leader)
    second = await bench.lead()
    writer = await second.edges.open_writer("s", 2, bench.keys)
    assert (writer.position, writer.ended, writer.batch_id) == (b"2", True, 1)
    assert second.edges.ended(bench.topics[0].uid)
    assert await all_rows(bench, second) == [["a", "END"], [], ["bad"]]


async def test_records_that_were_produced_and_stages_share_a_partition_in_order(bench: EdgeBench) -> None:
    leader = await bench.lead()
    key = bench.keys[0]
    await leader.edges.open_writer("f", 1, bench.keys)
    for number in range(5):
        await leader.edges.stage("f", 1, f"s{number}", key, rows(f"staged {number}"))
        await asyncio.gather(
            leader.leds[key].partition.produce(rows(f"produced {number}")),
            leader.edges.commit("f", 1, number, [f"s{number}"]),
        )
    found = await leader.rows(key)
    assert sorted(found) == sorted(f"{how} {n}" for how in ("staged", "produced") for n in range(5))
    assert [one for one in found if one.startswith("s")] == [f"staged {n}" for n in range(5)]


async def test_a_caller_that_gives_up_leaves_the_commit_to_be_finished(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_writer("f", 1, bench.keys)
    for number in range(3):
        await leader.edges.stage("f", 1, f"s{number}", bench.keys[0], rows(f"row {number}"))
        committing = asyncio.ensure_future(leader.edges.commit("f", 1, number, [f"s{number}"]))
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        assert await leader.edges.commit("f", 1, number, [f"s{number}"]) is False
    assert await leader.rows(bench.keys[0]) == ["row 0", "row 1", "row 2"]


async def test_a_store_that_fails_before_or_after_the_upload_is_asked_again(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_writer("f", 1, bench.keys)
    bench.objects.fail_before = 2
    await leader.edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    bench.objects.fail_after = 1
    await leader.edges.stage("f", 1, "b", bench.keys[0], rows("b"))
    await leader.edges.commit("f", 1, 0, ["a", "b"])
    assert await leader.rows(bench.keys[0]) == ["a", "b"]


async def test_every_call_may_reach_the_catalog_twice(bench: EdgeBench) -> None:
    leader = await bench.lead(Steps(twice=True))
    await leader.edges.open_writer("f", 1, bench.keys)
    for number in range(3):
        await leader.edges.stage("f", 1, f"s{number}", bench.keys[0], rows(f"row {number}"))
        assert await leader.edges.commit("f", 1, number, [f"s{number}"]) is True
    assert await leader.edges.commit("f", 1, 3, [], ends=bench.keys[:2]) is True
    assert await all_rows(bench, leader) == [["row 0", "row 1", "row 2", "END"], ["END"], []]


async def test_a_commit_without_an_answer_ends_the_leadership_and_the_next_one_knows(bench: EdgeBench) -> None:
    steps = Steps(at=3, after=True)
    leader = await bench.lead(steps)
    await leader.edges.open_writer("f", 1, bench.keys)
    await leader.edges.stage("f", 1, "a", bench.keys[0], rows("a"))
    await leader.edges.stage("f", 1, "b", bench.keys[1], rows("b"))
    with pytest.raises(Crash):
        await leader.edges.commit("f", 1, 0, ["a", "b"])
    assert all(led.partition.lost for led in leader.leds.values())
    # The same process and session, which asks for its partitions again.
    again = await bench.take(leader.member)
    assert await again.edges.commit("f", 1, 0, ["a", "b"]) is False
    assert await all_rows(bench, again) == [["a"], ["b"], []]


class Run:
    """A fragment that writes four batches and an end, and begins again wherever a leader has left it."""

    def __init__(self, bench: EdgeBench, *, new_epoch: bool) -> None:
        self.bench = bench
        self.fragment = f"fragment of {bench.keys[0].topic_uid}"
        self.epoch = 1
        self.new_epoch = new_epoch

    async def write(self, leader: Leader) -> None:
        edges, keys = leader.edges, self.bench.keys
        last = (await edges.open_writer(self.fragment, self.epoch, keys)).batch_id
        for number in range(last + 1, 4):
            name = f"{number}" if not self.new_epoch else f"{number}-{self.epoch}"
            await edges.stage(self.fragment, self.epoch, f"a{name}", keys[0], rows(f"a{number}", f"b{number}"))
            await edges.stage(self.fragment, self.epoch, f"lost{name}", keys[0], rows("of a task that lost"))
            await edges.stage(self.fragment, self.epoch, f"c{name}", keys[1], rows(f"c{number}"))
            await edges.stage(self.fragment, self.epoch, f"e{name}", keys[2], rows(f"e{number}"))
            await edges.commit(self.fragment, self.epoch, number, [f"a{name}", f"c{name}", f"e{name}"])
        if last < 4:
            await edges.commit(self.fragment, self.epoch, 4, [], ends=keys[:2])


EXPECTED = [
    [f"{letter}{number}" for number in range(4) for letter in "ab"] + ["END"],
    [f"c{number}" for number in range(4)] + ["END"],
    [f"e{number}" for number in range(4)],
]


@pytest.mark.parametrize("new_epoch", [True, False], ids=["as a new run", "as the same run"])
@pytest.mark.parametrize("after", [False, True], ids=["before it happens", "after it happened"])
@pytest.mark.slow
async def test_the_leader_may_be_lost_at_any_step_with_its_disk(bench: EdgeBench, after: bool, new_epoch: bool) -> None:
    at, crashes = 0, 0
    while True:
        await bench.start()
        run = Run(bench, new_epoch=new_epoch)
        leader = await bench.lead(Steps(at, after))
        try:
            await run.write(leader)
            finished = True
        except Crash:
            finished, crashes = False, crashes + 1
            await leader.in_objects.close()
            await bench.lost(leader)
            run.epoch += new_epoch
            leader = await bench.lead()
            await run.write(leader)
        assert await all_rows(bench, leader) == EXPECTED, f"lost at step {at}"
        fresh = await bench.take(leader.member)
        assert await all_rows(bench, fresh) == EXPECTED
        if finished:
            break
        at += 1
    # One opening; four objects and a commit for each batch; two objects and a commit for the end.
    assert crashes == 1 + 4 * 5 + 3


async def test_leaders_may_be_lost_one_after_the_other(bench: EdgeBench) -> None:
    run = Run(bench, new_epoch=True)
    for _ in range(40):
        leader = await bench.lead(Steps(at=run.epoch % 6, after=bool(run.epoch % 2)))
        try:
            await run.write(leader)
            break
        except Crash:
            await leader.in_objects.close()
            await bench.lost(leader)
            run.epoch += 1
    else:
        leader = await bench.lead()
        await run.write(leader)
    assert await all_rows(bench, await bench.take(leader.member)) == EXPECTED


async def test_a_reader_that_was_shut_out_stays_so_under_every_leader(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_reader("r", 2, bench.keys[:2])
    asked = leader.catalog.steps.count
    for _ in range(10):
        await leader.edges.open_reader("r", 2, bench.keys[:2])
    assert leader.catalog.steps.count == asked, "the catalog is asked once for each run"
    with pytest.raises(StaleWriter):
        await leader.edges.open_reader("r", 1, bench.keys[:2])
    await bench.lost(leader)
    second = await bench.lead()
    with pytest.raises(StaleWriter):
        await second.edges.open_reader("r", 1, bench.keys[:2])
    await second.edges.open_reader("r", 3, bench.keys[:2])


async def test_the_catalog_refuses_what_a_writer_has_not_opened_and_shows_nothing_of_it(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_writer("f", 1, bench.keys[:1])
    with pytest.raises(NotAccepted):
        await leader.edges.stage("f", 1, "a", bench.keys[1], rows("a"))
    with pytest.raises(NotLeader):
        await leader.edges.commit("unknown", 1, 0, [])


def test_a_stage_lives_until_its_writer_has_moved_on() -> None:
    hostile = StageTime("../frag ment/..", 7, -1)
    name = name_of(PartitionKey("topic-1", 3), hostile, "../../id")
    assert read_name(name) == (PartitionKey("topic-1", 3), hostile) and ".." not in name.split("/")
    assert read_name("topic-1/3/0000000000000007/00000000000000000001-segment-x") is None
    assert may_be_committed(hostile, 7, -1)
    assert not may_be_committed(hostile, 7, 0)
    assert not may_be_committed(hostile, 8, -1)


def drop(request: api.DropTopicRequest, tx: Tx) -> None:
    topics.drop_topic(tx, request)


async def test_deleting_the_topics_forgets_their_writers(bench: EdgeBench) -> None:
    leader = await bench.lead()
    await leader.edges.open_writer("f", 1, bench.keys)
    for topic in bench.topics:
        request = api.DropTopicRequest(name=topic.name)
        await bench.store.write(partial(drop, request))
    writers = api.FindWritersRequest(fragment_uids=["f"])
    assert not (await leader.catalog.once("FindWriters", writers)).writers
    with pytest.raises(HeadgateError):
        await leader.catalog.segments(bench.keys[0], 0, 1)
    leader.edges.forget(lambda uid: False)
    assert not leader.in_objects.writes("f")

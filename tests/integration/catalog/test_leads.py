"""Leading partitions: one leader at a time, epochs that only grow, volumes that are waited for, holes never reused."""

from __future__ import annotations

import asyncio

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.catalog import agents as agent_entity
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.log import counters, topics
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.errors import (
    AGENT_NOT_ELIGIBLE,
    INVALID_CONFIG,
    LOSS_NOT_ACCEPTED,
    OFFSET_CONFLICT,
    PARTITION_LED,
    PARTITION_NOT_FOUND,
    SESSION_EXPIRED,
    STALE_EPOCH,
    TOPIC_NOT_FOUND,
)
from tests.integration.catalog.kit import Databases
from tests.integration.catalog.log_kit import (
    WAL,
    acquire,
    changes_since,
    commit,
    commits,
    fails,
    gone,
    joined,
    lead,
    leader,
    offsets,
    partitions,
    recover,
    release,
    reserve,
    revision_of,
    roles,
    topic,
)


async def test_a_partition_has_one_leader_and_the_other_is_told(store: Store) -> None:
    made, a, b = await topic(store, partitions=2), await joined(store, "a"), await joined(store, "b")
    first, second = await acquire(store, a, made, [0, 1])
    assert (first.epoch, second.epoch, first.state.leader, first.state.waiting) == (1, 1, "a", "")
    again, missing = await acquire(store, b, made, [0, 7])
    assert (again.refusal, again.epoch, again.state.leader) == ("GRANT_CONFLICT", 0, "a")
    assert (missing.refusal, missing.epoch) == ("PARTITION_NOT_FOUND", 0)


async def test_what_a_session_leads_already_keeps_its_epoch_and_is_no_revision(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    await lead(store, a, made)
    before = await revision_of(store)
    (again,) = await acquire(store, a, made)
    assert (again.epoch, again.refusal) == (1, "")
    assert await revision_of(store) == before


async def test_of_many_that_ask_at_once_one_leads(store: Store) -> None:
    made = await topic(store)
    members = [await joined(store, name) for name in "abcdef"]
    answers = await asyncio.gather(*(acquire(store, member, made) for member in members))
    assert sorted(got.refusal for (got,) in answers) == ["", *["GRANT_CONFLICT"] * 5]


async def test_epochs_grow_over_release_loss_and_restart(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await release(store, a, led)
    epochs = [led.epoch, (await lead(store, a, made)).epoch]
    await gone(store, a)
    b = await joined(store, "b")
    epochs.append((await lead(store, b, made)).epoch)
    b = await joined(store, "b", incarnation="2")
    epochs.append((await lead(store, b, made)).epoch)
    assert epochs == [1, 2, 3, 4]


async def test_a_session_that_ends_leaves_its_partitions_without_a_leader_in_one_revision(store: Store) -> None:
    made, a = await topic(store, partitions=3), await joined(store, "a")
    await acquire(store, a, made, range(3))
    before = await revision_of(store)
    await gone(store, a)
    (changes,) = await changes_since(store, before)
    assert sorted(change.kind for change in changes) == ["AGENT", *["PARTITION"] * 3]
    agent = next(change for change in changes if change.kind == "AGENT")
    assert (agent.before.present, agent.after.present) == (True, False)  # type: ignore[union-attr]
    for change in changes:
        if isinstance(change.after, log.Partition):
            assert isinstance(change.before, log.Partition)
            assert (change.before.leader, change.after.leader, change.after.epoch) == ("a", "", 1)
            assert "agent a, is gone" in change.after.waiting
            assert not change.after.HasField("offsets")


async def test_what_a_dropped_agent_led_passes_on_when_its_session_has_run_out(store: Store) -> None:
    """Its process may be alive, and serve for as long as it believes in its session."""
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    before = await revision_of(store)
    await store.write(lambda tx: agent_entity.drop_agent(tx, catalog.DropAgentRequest(name="a", force=True)))
    (changes,) = await changes_since(store, before)
    assert {change.kind for change in changes} == {"AGENT", "PARTITION"}
    (dropped,) = await partitions(store, made)
    assert dropped.leader == "" and "agent a, was dropped" in dropped.waiting
    (refused,) = await acquire(store, b, made)
    assert refused.refusal == "GRANT_CONFLICT"
    await commits(store, a, commit(led, 0, 10))
    await gone(store, a)
    (waiting,) = await partitions(store, made)
    assert waiting.leader == "" and "agent a, is gone" in waiting.waiting
    assert (await lead(store, b, made)).epoch > led.epoch
    await fails(commits(store, a, commit(led, 10, 20)), STALE_EPOCH)


async def test_the_session_of_a_dropped_agent_that_holds_nothing_ends_at_once(store: Store) -> None:
    a = await joined(store, "a")
    await store.write(lambda tx: agent_entity.drop_agent(tx, catalog.DropAgentRequest(name="a")))
    assert a.session not in {session.uid for session in await store.read(sessions.list_sessions)}


async def test_taking_the_place_of_an_agent_ends_its_leads(store: Store) -> None:
    made = await topic(store)
    await lead(store, await joined(store, "b"), made)
    second = await joined(store, "b", incarnation="2")
    assert (await partitions(store, made))[0].leader == ""
    await lead(store, second, made)
    assert (await partitions(store, made))[0].leader == "b"


async def test_an_agent_without_the_role_or_session_leads_nothing(store: Store) -> None:
    made = await topic(store)
    other = await joined(store, "a", roles=roles("FRAGMENTS"))
    await fails(acquire(store, other, made), AGENT_NOT_ELIGIBLE)
    late = await joined(store, "b")
    await gone(store, late)
    await fails(acquire(store, late, made), SESSION_EXPIRED)


async def test_a_topic_is_led_by_agents_of_its_group(store: Store) -> None:
    request = log.CreateTopicRequest(name="t", partitions=1, group="hot")
    made = await store.write(lambda tx: topics.create_topic(tx, request, topics.TopicRules()))
    (refused,) = await acquire(store, await joined(store, "a"), made)
    assert refused.refusal == "AGENT_NOT_ELIGIBLE"
    await lead(store, await joined(store, "b", group="hot"), made)


async def test_a_release_may_be_repeated_but_not_by_a_former_leader(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await release(store, a, led)
    await release(store, a, led)
    assert (await partitions(store, made))[0].waiting == "agent a gave it back"
    await lead(store, b, made)
    await fails(release(store, a, led), STALE_EPOCH)
    assert (await partitions(store, made))[0].leader == "b"


async def test_reservations_only_grow_and_are_no_revision(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    led = await lead(store, a, made)
    before = await revision_of(store)
    await reserve(store, a, led, 1000)
    await reserve(store, a, led, 500)
    assert await offsets(store, made) == (0, 0, 1000)
    assert await revision_of(store) == before
    await fails(reserve(store, a, leader(made, led.epoch + 1), 2000), STALE_EPOCH)
    assert await offsets(store, made) == (0, 0, 1000)


async def test_an_object_topic_reserves_nothing(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    await fails(reserve(store, a, await lead(store, a, made), 10), INVALID_CONFIG)


async def test_a_wal_partition_waits_for_the_volume_of_its_lost_leader(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL), await joined(store, "a"), await joined(store, "b")
    await reserve(store, a, await lead(store, a, made), 1000)
    await gone(store, a)
    (found,) = await partitions(store, made)
    assert (found.leader, found.volume_id) == ("", "volume-a")
    assert "waits for an agent with that volume" in found.waiting
    before = await revision_of(store)
    (refused,) = await acquire(store, b, made)
    assert (refused.refusal, refused.epoch) == ("WAITS_FOR_VOLUME", 0)
    assert await revision_of(store) == before, "it was known already"
    c = await joined(store, "c", volume="volume-a")
    (got,) = await acquire(store, c, made)
    assert (got.epoch, got.state.offsets.reserved, got.state.waiting, got.state.volume_id) == (2, 1000, "", "volume-a")


async def test_a_wal_partition_with_everything_in_segments_waits_for_nobody(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await reserve(store, a, led, 10)
    await commits(store, a, commit(led, 0, 10))
    await gone(store, a)
    assert (await partitions(store, made))[0].volume_id == ""
    (got,) = await acquire(store, b, made)
    assert (got.epoch, got.state.volume_id) == (2, "volume-b")


async def test_a_flushed_release_frees_the_volume_and_an_unflushed_one_does_not(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await reserve(store, a, led, 100)
    await release(store, a, led, flushed=False)
    (refused,) = await acquire(store, b, made)
    assert refused.refusal == "WAITS_FOR_VOLUME"
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 7))
    await release(store, a, led, flushed=True)
    assert await offsets(store, made) == (0, 7, 7)
    await lead(store, b, made)


async def test_an_agent_without_a_volume_does_not_lead_wal_partitions(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a", volume="")
    (refused,) = await acquire(store, a, made)
    assert refused.refusal == "NO_VOLUME"


async def test_a_recovery_leaves_a_hole_that_is_never_given_out_again(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL, partitions=2), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await reserve(store, a, led, 1000)
    await commits(store, a, commit(led, 0, 400))
    await gone(store, a)
    error = await fails(recover(store, made.name, accept_loss=False), LOSS_NOT_ACCEPTED)
    assert error.metadata["records"] == "600"
    (recovered,) = await recover(store, made.name)
    assert recovered.index == 0
    (hole,) = recovered.offsets.holes
    assert (hole.from_offset, hole.to_offset) == (400, 1000)
    assert await offsets(store, made) == (0, 1000, 1000)
    led = await lead(store, b, made)
    await fails(commits(store, b, commit(led, 400, 410)), OFFSET_CONFLICT)
    await commits(store, b, commit(led, 1000, 1010))
    (found, _) = await partitions(store, made)
    assert [(hole.from_offset, hole.to_offset) for hole in found.offsets.holes] == [(400, 1000)]


async def test_after_an_accepted_loss_retries_of_what_segments_hold_are_still_known(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL, partitions=2), await joined(store, "a"), await joined(store, "b")
    last = await store.write(lambda tx: counters.take(tx, counters.PRODUCER_ID, 5)) + 4
    known = log.ProducerState(producer_id=2, batches=[log.ProducerBatch(base_sequence=0, last_sequence=3)])
    for index in (0, 1):
        led = await lead(store, a, made, index)
        await reserve(store, a, led, 1000)
        await commits(store, a, commit(led, 0, 4, producers=[known]))
    await gone(store, a)
    await recover(store, made.name, 0)
    (given_up,) = await acquire(store, b, made, [0])
    assert list(given_up.producers) == [known]
    assert given_up.producers_forgotten == last, "of the others all may have been lost"
    c = await joined(store, "c", volume="volume-a")
    (kept,) = await acquire(store, c, made, [1])
    assert (list(kept.producers), kept.producers_forgotten) == ([known], 0)


async def test_an_answer_has_as_many_partitions_as_fit_and_the_rest_is_neither_told_nor_granted(store: Store) -> None:
    made, a, b = await topic(store, partitions=130), await joined(store, "a"), await joined(store, "b")
    batches = [log.ProducerBatch(base_sequence=n, last_sequence=n, base_offset=1 << 40) for n in range(5)]
    states = [log.ProducerState(producer_id=n, batches=batches) for n in range(200)]
    size = sum(state.ByteSize() for state in states)
    crowded = range(0, 130, 2)
    for got in await acquire(store, a, made, crowded):
        led = leader(made, got.epoch, got.partition.index)
        await commits(store, a, commit(led, 0, 5, producers=states))
    await gone(store, a)
    asked, answers = list(range(130)), 0
    while asked:
        got = await acquire(store, b, made, asked, max_bytes=20 * size)
        answers += 1
        assert [each.partition.index for each in got] == asked[: len(got)], "in the order of the request"
        assert all(each.epoch and not each.refusal for each in got)
        assert all(len(each.producers) == (200 if each.partition.index in crowded else 0) for each in got)
        assert 0 < log.AcquirePartitionsResponse(partitions=got).ByteSize() < 20 * size
        asked = asked[len(got) :]
        led = [each.index for each in await partitions(store, made) if each.leader == "b"]
        assert led == [index for index in range(130) if index not in asked], "what was not told was not granted"
    assert answers > 3


async def test_a_partition_that_fills_an_answer_is_answered_alone(store: Store) -> None:
    made, a, b = await topic(store, partitions=3), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made, 1)
    states = [log.ProducerState(producer_id=n, producer_epoch=3) for n in range(500)]
    await commits(store, a, commit(led, 0, 5, producers=states))
    await gone(store, a)
    for expected in ([0], [1], [2]):
        got = await acquire(store, b, made, range(expected[0], 3), max_bytes=2000)
        assert [each.partition.index for each in got] == expected


async def test_a_recovery_is_refused_while_an_agent_leads(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    await reserve(store, a, await lead(store, a, made), 1000)
    await fails(recover(store, made.name, 0), PARTITION_LED)
    assert list(await recover(store, made.name)) == [], "none waits"
    assert await offsets(store, made) == (0, 0, 1000)
    await fails(recover(store, made.name, 5), PARTITION_NOT_FOUND)
    await fails(recover(store, "nothing"), TOPIC_NOT_FOUND)


async def test_an_agent_keeps_its_number_and_no_other_ever_gets_it(store: Store) -> None:
    numbers = []
    for name in ("a", "b"):
        await joined(store, name)
        numbers.append((await agent(store, name)).node_id)
    await store.write(lambda tx: agent_entity.drop_agent(tx, catalog.DropAgentRequest(name="b", force=True)))
    await joined(store, "c")
    numbers.append((await agent(store, "c")).node_id)
    await joined(store, "a", incarnation="2")
    numbers.append((await agent(store, "a")).node_id)
    assert numbers == [1, 2, 3, 1]


async def test_an_agent_is_present_exactly_while_its_session_lives(store: Store) -> None:
    await store.write(
        lambda tx: agent_entity.create_agent(
            tx, catalog.CreateAgentRequest(name="a", address="127.0.0.1:7097", slots=1)
        )
    )
    seen = [(await agent(store, "a")).present]
    member = await joined(store, "a", kafka_address="Broker.example:9092")
    seen.append((await agent(store, "a")).present)
    assert (await agent(store, "a")).kafka_address == "broker.example:9092"
    await gone(store, member)
    seen.append((await agent(store, "a")).present)
    assert seen == [False, True, False]


async def agent(store: Store, name: str) -> catalog.Agent:
    return await store.read(lambda tx: agent_entity.get_agent(tx, catalog.GetAgentRequest(name=name)))


async def test_of_two_coordinators_on_one_database_one_grants_and_both_fence(databases: Databases) -> None:
    one, two = await databases.open(), await databases.open()
    made, a, b = await topic(one, partitions=8), await joined(one, "a"), await joined(two, "b")
    first, second = await asyncio.gather(acquire(one, a, made, range(8)), acquire(two, b, made, range(8)))
    assert sorted((x.refusal, y.refusal) for x, y in zip(first, second, strict=True)) in (
        [("", "GRANT_CONFLICT")] * 8,
        [("GRANT_CONFLICT", "")] * 8,
    )
    old, new = (a, b) if first[0].epoch else (b, a)
    await gone(two, old)
    led = await lead(one, new, made, 3)
    await fails(commits(two, old, commit(leader(made, 1, 3), 0, 5, "stale")), STALE_EPOCH)
    outcomes = await asyncio.gather(
        *(commits(store, new, commit(led, 0, 5, f"u{n}")) for n, store in enumerate((one, two, one, two))),
        return_exceptions=True,
    )
    assert sum(outcome is None for outcome in outcomes) == 1

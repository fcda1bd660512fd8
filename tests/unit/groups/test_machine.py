"""The state machine of a consumer group: events and times in, answers out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate_agent.groups.events import (
    Beat,
    Beaten,
    GroupState,
    HungUp,
    Instruction,
    Join,
    Joined,
    Leave,
    Left,
    Lost,
    Refusal,
    Store,
    Stored,
    StoreFailed,
    Sync,
    Synced,
    Tick,
)
from headgate_agent.groups.machine import GroupMachine, Rules
from tests.examples import examples

RANGE = (("range", b"topics"),)
R = Refusal


class Group:
    """A machine with a clock, and the answers by request."""

    def __init__(self, rules: Rules | None = None, generation: int = 0, *, stores: bool = True) -> None:
        self.machine = GroupMachine(rules or Rules(), generation)
        self.now = 100.0
        self.requests = 0
        self.answers: dict[int, Any] = {}
        self.stores = stores
        self.stored: list[int] = []

    def give(self, event: Any) -> list[Instruction]:
        out = self.machine.handle(event, self.now)
        for one in out:
            if isinstance(one, Store):
                self.stored.append(one.generation)
                if self.stores:
                    self.give(Stored(one.generation))
            else:
                assert one.request not in self.answers, "one answer to a request"
                self.answers[one.request] = one
        return out

    def number(self) -> int:
        self.requests += 1
        return self.requests

    def join(self, member: str = "", *, instance: str | None = None, needs_id: bool = True, **values: Any) -> int:
        request = self.number()
        join = Join(request, member, instance, "c", "/h", 10.0, 60.0, "consumer", RANGE, f"new-{request}", needs_id)
        self.give(replace(join, **values))
        return request

    def sync(self, member: str, generation: int | None = None, assignments: dict[str, bytes] | None = None) -> int:
        request = self.number()
        at = self.machine.generation if generation is None else generation
        self.give(Sync(request, member, None, at, None, None, assignments or {}))
        return request

    def beat(self, member: str, generation: int | None = None) -> Refusal | None:
        request = self.number()
        self.give(Beat(request, member, None, self.machine.generation if generation is None else generation))
        answer = self.answers[request]
        assert isinstance(answer, Beaten)
        return answer.refusal

    def leave(self, *members: tuple[str, str | None]) -> list[Refusal | None]:
        request = self.number()
        self.give(Leave(request, members))
        answer = self.answers[request]
        assert isinstance(answer, Left)
        return list(answer.refusals)

    def wait(self, seconds: float) -> None:
        """Lets time pass, ticking whenever the machine asks for it."""
        until = self.now + seconds
        for _ in range(10_000):
            if self.machine.due > until:
                break
            self.now = max(self.now, self.machine.due)
            self.give(Tick())
        self.now = until

    def joined(self, request: int) -> Joined:
        answer = self.answers[request]
        assert isinstance(answer, Joined)
        return answer

    def synced(self, request: int) -> Synced:
        answer = self.answers[request]
        assert isinstance(answer, Synced)
        return answer

    def member(self) -> str:
        """A new id, as a dynamic member gets one."""
        answer = self.joined(self.join())
        assert answer.refusal is R.MEMBER_ID_REQUIRED
        return answer.member_id

    def stable(self, count: int) -> list[str]:
        """A stable group of so many members, the first of which leads."""
        members = [self.member() for _ in range(count)]
        for one in members:
            self.join(one)
        self.assign(members)
        return members

    def assign(self, members: list[str]) -> None:
        for one in members:
            self.sync(
                one, assignments={each: each.encode() for each in members} if one == self.machine.leader else None
            )
        assert self.machine.state is GroupState.STABLE


def test_a_member_without_an_id_is_given_one_and_joins_with_it() -> None:
    group = Group()
    member = group.member()
    assert group.machine.state is GroupState.EMPTY
    answer = group.joined(group.join(member))
    assert (answer.refusal, answer.generation, answer.leader) == (None, 1, member)
    assert [one for one, _, _ in answer.members] == [member]


def test_old_clients_join_without_asking_for_an_id_first() -> None:
    group = Group()
    answer = group.joined(group.join(needs_id=False))
    assert (answer.refusal, answer.generation) == (None, 1)


def test_all_members_get_what_the_leader_assigned_once_the_generation_is_stored() -> None:
    group = Group(stores=False)
    members = [group.member() for _ in range(3)]
    joins = [group.join(one) for one in members]
    assert {group.joined(one).generation for one in joins} == {1}
    assert [len(group.joined(one).members) for one in joins] == [3, 0, 0]
    syncs = [group.sync(members[2]), group.sync(members[1])]
    syncs.append(group.sync(members[0], assignments={one: one.encode() for one in members}))
    assert group.stored == [1]
    assert not set(syncs) & set(group.answers), "nobody works under a generation that is not stored"
    group.give(Stored(1))
    assert [group.synced(one).assignment.decode() for one in syncs] == [members[2], members[1], members[0]]
    assert group.machine.state is GroupState.STABLE


def test_a_generation_that_cannot_be_stored_is_not_worked_under() -> None:
    group = Group(stores=False)
    member = group.member()
    group.join(member)
    sync = group.sync(member, assignments={member: b"all"})
    group.give(StoreFailed(1, R.COORDINATOR_NOT_AVAILABLE))
    assert group.synced(sync).refusal is R.COORDINATOR_NOT_AVAILABLE
    again = group.sync(member, assignments={member: b"all"})
    group.give(Stored(1))
    assert group.synced(again).assignment == b"all"


def test_a_group_begins_above_the_generation_that_was_stored() -> None:
    group = Group(generation=41)
    assert group.joined(group.join(group.member())).generation == 42


def test_a_new_member_makes_the_others_join_again() -> None:
    group = Group()
    first, second = group.stable(2)
    third = group.join(group.member())
    assert group.beat(first) is R.REBALANCE_IN_PROGRESS
    rejoined = [group.join(first), group.join(second)]
    assert {group.joined(one).generation for one in (third, *rejoined)} == {group.machine.generation}
    assert group.beat(first, group.machine.generation - 1) is R.ILLEGAL_GENERATION


def test_a_rebalance_waits_for_ids_that_were_given_out() -> None:
    group = Group()
    group.stable(1)
    (first,) = group.machine.members
    promised = group.member()
    join = group.join(first)
    assert join not in group.answers
    other = group.join(promised)
    assert group.joined(join).generation == group.joined(other).generation


def test_who_does_not_join_again_in_time_is_out() -> None:
    group = Group()
    first, second = group.stable(2)
    third = group.join(group.member())
    rejoined = group.join(first)
    for _ in range(70):
        group.wait(1.0)
        group.beat(second)
    assert group.joined(third).generation == group.joined(rejoined).generation
    assert second not in group.machine.members
    assert group.beat(second) is R.UNKNOWN_MEMBER_ID


def test_who_falls_silent_is_out_and_the_others_rebalance() -> None:
    group = Group()
    first, _ = group.stable(2)
    for _ in range(30):
        group.wait(0.5)
        if group.beat(first) is R.REBALANCE_IN_PROGRESS:
            break
    assert list(group.machine.members) == [first]
    rejoined = group.join(first)
    assert [one for one, _, _ in group.joined(rejoined).members] == [first]


def test_who_joined_and_does_not_sync_is_out() -> None:
    group = Group()
    first, second = group.member(), group.member()
    group.join(first)
    group.join(second)
    group.sync(second)
    for _ in range(100):
        group.wait(1.0)
        group.beat(first)
    assert first not in group.machine.members


def test_a_member_that_waits_for_an_answer_is_not_silent() -> None:
    group = Group()
    first, second = group.stable(2)
    join = group.join(first)
    for _ in range(3):
        group.wait(8.0)
        group.beat(second)
    assert join not in group.answers
    assert first in group.machine.members


def test_a_member_whose_connection_broke_while_it_waited_is_found_by_its_silence() -> None:
    group = Group()
    first, second = group.stable(2)
    join = group.join(first)
    group.give(HungUp(join))
    for _ in range(6):
        group.wait(4.0)
        group.beat(second)
    assert first not in group.machine.members


def test_a_leaving_member_is_out_at_once() -> None:
    group = Group()
    first, second = group.stable(2)
    assert group.leave((second, None), ("nobody", None)) == [None, R.UNKNOWN_MEMBER_ID]
    assert group.beat(first) is R.REBALANCE_IN_PROGRESS
    assert group.leave((first, None)) == [None]
    assert group.machine.state is GroupState.EMPTY
    assert group.stored[-1] == group.machine.generation


def test_a_member_may_leave_while_others_wait_for_it() -> None:
    group = Group()
    first, second = group.stable(2)
    join = group.join(first)
    group.leave((second, None))
    assert group.joined(join).refusal is None


def test_a_follower_that_asks_again_gets_the_same_generation_without_a_rebalance() -> None:
    group = Group()
    _, second = group.stable(2)
    answer = group.joined(group.join(second))
    assert (answer.refusal, answer.generation, answer.members) == (None, group.machine.generation, [])
    assert group.machine.state is GroupState.STABLE


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    group = Group()
    first, _ = group.stable(2)
    assert group.join(first) not in group.answers
    assert group.machine.state is GroupState.PREPARING_REBALANCE


def test_a_member_with_other_topics_makes_a_rebalance() -> None:
    group = Group()
    _, second = group.stable(2)
    group.join(second, protocols=(("range", b"other topics"),))
    assert group.machine.state is GroupState.PREPARING_REBALANCE


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    group = Group()
    preferences = (("a", "b"), ("b", "a"), ("b", "a", "c"))
    for names in preferences:
        group.join(needs_id=False, protocols=tuple((name, name.encode()) for name in names))
    assert group.machine.protocol == "a", "the first member is alone"
    (first, *_) = group.machine.members
    join = group.join(first, protocols=(("a", b"a"), ("b", b"b")))
    answer = group.joined(join)
    assert answer.protocol == "b"
    assert {metadata for _, _, metadata in answer.members} == {b"b"}


def test_a_member_without_a_common_protocol_is_refused() -> None:
    group = Group()
    group.stable(1)
    stranger = group.join(needs_id=False, protocols=(("sticky", b""),))
    assert group.joined(stranger).refusal is R.INCONSISTENT_GROUP_PROTOCOL
    other = group.join(needs_id=False, protocol_type="connect")
    assert group.joined(other).refusal is R.INCONSISTENT_GROUP_PROTOCOL
    assert group.machine.state is GroupState.STABLE


@pytest.mark.parametrize("timeout", [0.5, 2000.0])
def test_a_session_timeout_out_of_bounds_is_refused(timeout: float) -> None:
    group = Group()
    assert group.joined(group.join(session_timeout=timeout)).refusal is R.INVALID_SESSION_TIMEOUT


def test_what_a_member_says_of_itself_is_bounded_alone_and_with_the_others() -> None:
    group = Group(Rules(member_bytes=100, group_bytes=250))
    said = (("range", b"m" * 95),)
    assert group.joined(group.join(protocols=(("range", b"m" * 96),))).refusal is R.POLICY_VIOLATION
    for _ in range(2):
        group.join(needs_id=False, protocols=said)
    assert group.joined(group.join(protocols=said)).refusal is R.POLICY_VIOLATION, "two hold 200 of 250"
    assert group.joined(group.join(protocols=(("range", b"m" * 40),))).refusal is R.MEMBER_ID_REQUIRED


def test_a_member_that_says_something_else_takes_no_more_room_than_that() -> None:
    group = Group(Rules(group_bytes=300))
    (only,) = group.stable(1)
    for _ in range(5):
        again = group.join(only, protocols=(("range", b"m" * 280),))
        assert group.joined(again).refusal is None
    assert group.joined(group.join(only, protocols=(("range", b"m" * 300),))).refusal is R.POLICY_VIOLATION


def test_assignments_are_bounded() -> None:
    group = Group(Rules(group_bytes=300))
    joined = group.joined(group.join(needs_id=False))
    too_long = group.sync(joined.member_id, assignments={joined.member_id: b"a" * 300})
    assert group.answers[too_long].refusal is R.POLICY_VIOLATION
    request = group.sync(joined.member_id, assignments={joined.member_id: b"a" * 100})
    assert group.answers[request].assignment == b"a" * 100


def test_a_group_has_no_more_members_than_it_may() -> None:
    group = Group(Rules(max_size=2))
    group.stable(2)
    assert group.joined(group.join()).refusal is R.GROUP_MAX_SIZE_REACHED


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    group = Group()
    group.join(instance="one")
    group.join(instance="two")
    first = group.machine.statics["one"]
    group.join(first, instance="one")
    members = list(group.machine.members)
    group.assign(members)
    generation, old = group.machine.generation, group.machine.statics["two"]
    back = group.joined(group.join(instance="two"))
    assert (back.refusal, back.generation, group.machine.state) == (None, generation, GroupState.STABLE)
    assert back.member_id != old
    assert group.synced(group.sync(back.member_id)).assignment == old.encode()
    assert group.beat(old) is R.UNKNOWN_MEMBER_ID
    request = group.number()
    group.give(Beat(request, old, "two", generation))
    assert group.answers[request].refusal is R.FENCED_INSTANCE_ID


def test_a_static_leader_that_comes_back_is_told_to_skip_assigning_if_it_can() -> None:
    group = Group()
    group.join(instance="one")
    group.assign(list(group.machine.members))
    skipping = group.joined(group.join(instance="one", skips_assignment=True))
    assert (skipping.skip_assignment, skipping.leader, len(skipping.members)) == (True, skipping.member_id, 1)
    old = group.joined(group.join(instance="one"))
    assert (old.skip_assignment, old.leader == old.member_id) == (False, False)
    assert group.machine.state is GroupState.STABLE


def test_two_processes_with_one_instance_id_do_not_both_stay() -> None:
    group = Group()
    waits = group.join(instance="one")
    group.machine.state = GroupState.PREPARING_REBALANCE
    first = group.machine.statics["one"]
    group.join(first, instance="one")
    second = group.joined(group.join(instance="one"))
    assert second.member_id != first
    assert group.joined(waits).refusal in (None, R.FENCED_INSTANCE_ID)
    assert group.joined(group.join(first, instance="one")).refusal is R.FENCED_INSTANCE_ID


def test_an_operator_can_remove_a_static_member_by_its_instance_id() -> None:
    group = Group()
    group.join(instance="one")
    assert group.leave(("", "one"), ("", "two")) == [None, R.UNKNOWN_MEMBER_ID]
    assert group.machine.state is GroupState.EMPTY


def test_the_first_rebalance_can_wait_for_more_members() -> None:
    group = Group(Rules(initial_rebalance_delay=3.0))
    first = group.join(needs_id=False)
    group.wait(1.0)
    second = group.join(needs_id=False)
    assert not {first, second} & set(group.answers)
    group.wait(3.0)
    assert group.joined(first).generation == group.joined(second).generation == 1


def test_commits_are_taken_from_members_of_this_generation_only() -> None:
    group = Group()
    check = group.machine.check_commit
    assert check("", None, -1, group.now) is None
    (member,) = group.stable(1)
    assert check(member, None, 1, group.now) is None
    assert check(member, None, 0, group.now) is R.ILLEGAL_GENERATION
    assert check("nobody", None, 1, group.now) is R.UNKNOWN_MEMBER_ID
    assert check("", None, -1, group.now) is R.UNKNOWN_MEMBER_ID, "the group has members"
    group.join(group.member())
    assert check(member, None, 1, group.now) is None, "before it joins again a member commits what it has"
    group.join(member)
    assert check(member, None, 2, group.now) is R.REBALANCE_IN_PROGRESS


def test_a_commit_says_that_its_member_is_alive() -> None:
    group = Group()
    (member,) = group.stable(1)
    for _ in range(5):
        group.wait(8.0)
        assert group.machine.check_commit(member, None, 1, group.now) is None


def test_losing_the_lead_answers_everyone_who_waits() -> None:
    group = Group()
    first, _ = group.stable(2)
    join = group.join(first)
    group.give(Lost(R.NOT_COORDINATOR))
    assert group.joined(join).refusal is R.NOT_COORDINATOR
    assert group.joined(group.join()).refusal is R.NOT_COORDINATOR
    assert group.beat(first) is R.NOT_COORDINATOR
    assert group.machine.due == float("inf")


class AnyHistory(RuleBasedStateMachine):
    """Members that do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(stores=False)
        self.generation = 0
        self.known: list[str] = []

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.known, "nobody"]))

    @rule(instance=st.sampled_from([None, "one", "two"]), needs_id=st.booleans(), name=st.sampled_from("ab"))
    def joins_anew(self, instance: str | None, needs_id: bool, name: str) -> None:
        request = self.group.join(instance=instance, needs_id=needs_id, protocols=(("range", b""), (name, b"")))
        answer = self.group.answers.get(request)
        self.known.append(answer.member_id if answer is not None else f"new-{request}")

    @rule(data=st.data())
    def joins_again(self, data: st.DataObject) -> None:
        self.group.join(self.pick(data))

    @rule(data=st.data())
    def syncs(self, data: st.DataObject) -> None:
        self.group.sync(self.pick(data), assignments=dict.fromkeys(self.known, b"x"))

    @rule(data=st.data())
    def beats(self, data: st.DataObject) -> None:
        self.group.beat(self.pick(data))

    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        self.group.leave((self.pick(data), None))

    @rule(stored=st.booleans())
    def catalog_answers(self, stored: bool) -> None:
        if self.group.stored:
            generation = self.group.stored[-1]
            self.group.give(Stored(generation) if stored else StoreFailed(generation, R.COORDINATOR_NOT_AVAILABLE))

    @rule(data=st.data())
    def hangs_up(self, data: st.DataObject) -> None:
        self.group.give(HungUp(data.draw(st.integers(1, self.group.requests + 1))))

    @rule(seconds=st.sampled_from([0.1, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.group.wait(seconds)

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.group.machine.generation >= self.generation
        self.generation = self.group.machine.generation

    @invariant()
    def the_machine_is_consistent(self) -> None:
        machine = self.group.machine
        assert (machine.state is GroupState.EMPTY) == (not machine.members)
        assert all(machine.members[id_].instance_id == name for name, id_ in machine.statics.items())
        if machine.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert not any(member.joining is not None for member in machine.members.values())
            assert machine.protocol is not None
        if machine.state is GroupState.STABLE:
            assert machine.generation in self.group.stored
            assert not any(member.syncing is not None for member in machine.members.values())

    def teardown(self) -> None:
        """Everyone is silent: in the end the group is empty, and every request was answered."""
        for generation in self.group.stored[-1:]:
            self.group.give(Stored(generation))
        for _ in range(20):
            self.group.wait(100.0)
            for generation in self.group.stored[-1:]:
                self.group.give(Stored(generation))
        hung_up = set(range(1, self.group.requests + 1)) - set(self.group.answers)
        assert self.group.machine.state is GroupState.EMPTY, self.group.machine.story
        assert not [one for one in hung_up if any(m.joining == one for m in self.group.machine.members.values())]


TestAnyHistory = pytest.mark.slow(AnyHistory.TestCase)
TestAnyHistory.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)

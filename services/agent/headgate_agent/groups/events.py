"""What happens to a consumer group, and what its state machine asks for in return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class GroupState(Enum):
    """Named as Kafka's clients and tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Refusal(Enum):
    """Why a member is refused; named as in the Kafka protocol."""

    UNKNOWN_MEMBER_ID = "the group has no such member"
    ILLEGAL_GENERATION = "the group has another generation"
    REBALANCE_IN_PROGRESS = "the group is being rebalanced: join again"
    INCONSISTENT_GROUP_PROTOCOL = "the members have no protocol in common"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside what the agent allows"
    MEMBER_ID_REQUIRED = "join again with the id that this answer gives"
    FENCED_INSTANCE_ID = "another process has joined under this instance id"
    GROUP_MAX_SIZE_REACHED = "the group has as many members as it may have"
    NOT_COORDINATOR = "another agent leads the group"
    COORDINATOR_NOT_AVAILABLE = "no agent can lead the group now"
    COORDINATOR_LOAD_IN_PROGRESS = "the agent is taking over the group"
    NON_EMPTY_GROUP = "the group has members"
    GROUP_ID_NOT_FOUND = "there is no such group"
    INVALID_GROUP_ID = "that is no name for a group"
    OFFSET_METADATA_TOO_LARGE = "the text beside the offset is too long"
    POLICY_VIOLATION = "there are as many groups as there may be, or what the members say of themselves is too long"
    UNKNOWN_TOPIC_OR_PARTITION = "there is no such topic or partition"


class GroupRefused(Exception):
    def __init__(self, refusal: Refusal, message: str = "") -> None:
        super().__init__(f"{refusal.name}: {message or refusal.value}")
        self.refusal = refusal
        self.message = message or refusal.value


# Requests carry a number of the caller's choice, by which the answer finds them.


@dataclass(frozen=True, slots=True)
class Join:
    """`new_id` is what a member without an id will be called; `needs_id`: such a member must first join again with it.
    `skips_assignment`: it can be told to lead without assigning. Times in seconds."""

    request: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str
    needs_id: bool = True
    skips_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    request: int
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beat:
    request: int
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """`members` are ids and instance ids; an operator may remove a static member by its instance id alone."""

    request: int
    members: Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Stored:
    """The catalog has the generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    generation: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class HungUp:
    """Nobody waits for the answer to this request any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """This agent leads the group no more."""

    refusal: Refusal


Event = Join | Sync | Beat | Leave | Stored | StoreFailed | HungUp | Tick | Lost


@dataclass(frozen=True, slots=True)
class Joined:
    """Answers a Join. `members` (id, instance id, metadata) are there for the leader, who assigns."""

    request: int
    refusal: Refusal | None
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: Sequence[tuple[str, str | None, bytes]] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    request: int
    refusal: Refusal | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Beaten:
    """Answers a Beat."""

    request: int
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Left:
    """Answers a Leave: what became of each."""

    request: int
    refusals: Sequence[Refusal | None]


@dataclass(frozen=True, slots=True)
class Store:
    """Asks that the catalog be told of a generation; answered by `Stored` or `StoreFailed`."""

    generation: int


Answer = Joined | Synced | Beaten | Left
Instruction = Answer | Store

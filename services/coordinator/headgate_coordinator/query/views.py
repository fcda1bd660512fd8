"""What `decide` looks at, and what it answers with.

A view is a row as far as it matters, with everything that depends on time already turned into booleans. A write is
carried out in the transaction that it was decided in; a call goes to the fragment's agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate_coordinator.query.transitions import FRAGMENT_ENDED


@dataclass(frozen=True, slots=True)
class QueryView:
    uid: str
    name: str
    state: str
    desired: str
    # SOFT, HARD, or empty.
    stop_mode: str
    # Why it fails is noted.
    failed: bool
    # It was RUNNING once.
    has_run: bool
    # Time is up for the deployment, for the drain.
    deployment_late: bool = False
    drain_late: bool = False
    # Its soft stop became a hard one.
    drain_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class FragmentView:
    uid: str
    ordinal: int
    node_local: bool
    # Uid of its agent; empty if it has none any more.
    agent: str
    agent_name: str
    # The process that this epoch was sent to; empty if it was sent to nobody.
    incarnation: str
    state: str
    epoch: int
    # Not confirmed gone.
    held: bool
    # Ordinals of the fragments whose output it reads.
    upstream: tuple[int, ...] = ()
    # It brings in rows of a source, and keeps none: what it has not read, nobody waits for.
    brings_in: bool = False
    # A call or a run of it failed a moment ago: not before its back-off is over.
    backing_off: bool = False
    # Its agent has accepted the soft stop of this epoch.
    draining: bool = False
    # It was looked for another agent a moment ago, in vain.
    no_room: bool = False
    last_error: str = ""
    attempts: int = 0
    # What its agent says that the run waits for before it can be RUNNING.
    waiting: str = ""

    @property
    def ended(self) -> bool:
        return self.state in FRAGMENT_ENDED


@dataclass(frozen=True, slots=True)
class AgentView:
    uid: str
    name: str
    active: bool
    incarnation: str
    # UNREACHABLE for longer than agents are waited for.
    lost: bool = False
    # For people: "40 s".
    unreachable_for: str = ""


@dataclass(frozen=True, slots=True)
class Blame:
    """Why a query fails; a fragment's number, or 0."""

    reason: str
    message: str
    fragment: int = 0


@dataclass(frozen=True, slots=True)
class SetState:
    to: str
    cause: str
    blame: Blame | None = None


@dataclass(frozen=True, slots=True)
class StopHard:
    """A soft stop becomes a hard one."""

    cause: str


@dataclass(frozen=True, slots=True)
class Address:
    """Notes which process of its agent the fragment is sent to, before it is sent."""

    fragment: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """A new run: on another agent if `move`, else on its own. It may turn out that there is no room."""

    fragment: str
    move: bool
    cause: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing of the fragment was ever sent to anybody: it is gone without asking."""

    fragment: str
    cause: str


@dataclass(frozen=True, slots=True)
class Delete:
    """The query has ended, nothing of it is left, and it is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Register:
    fragment: str


@dataclass(frozen=True, slots=True)
class Start:
    fragment: str


@dataclass(frozen=True, slots=True)
class Drain:
    """A soft stop."""

    fragment: str


@dataclass(frozen=True, slots=True)
class Unregister:
    """A hard stop, and the confirmation that nothing is left."""

    fragment: str


Write = SetState | StopHard | Address | NewEpoch | Gone | Delete
Call = Register | Start | Drain | Unregister


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why the query is not yet where it should be; `reason` as WaitingReason names it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    writes: tuple[Write, ...] = ()
    calls: tuple[Call, ...] = ()
    waiting: Waiting | None = None

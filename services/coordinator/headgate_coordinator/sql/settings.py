"""What the planner is configured with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Bounds and defaults of planning. The same settings, catalog and statement give the same plan."""

    # How late rows may come where neither the window nor the query says.
    default_lateness_us: int = 0
    # A source silent for so long no longer holds back the others; 0 for never.
    default_idle_timeout_us: int = 60_000_000
    # Relations in one query, each use of a WITH query counted with all that it reads.
    max_relations: int = 200
    # Parts of all expressions of one query, an alias counted at each use with all that it stands for.
    max_parts: int = 100_000
    # Windows that one row may be in.
    max_overlap: int = 1_000
    # Values in one IN list.
    max_in_list: int = 10_000
    # Slots that a fragment of each kind takes.
    source_slots: int = 1
    compute_slots: int = 1
    sink_slots: int = 1

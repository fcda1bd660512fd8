"""What the planner reads of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.catalog import v1 as catalog


class CatalogView(Protocol):
    """One consistent state of the catalog, asked piece by piece: a plan costs what its statement names, not what there
    is.

    Names come folded. Answers are as the API gives them, except that secrets in options are not redacted. Nothing is
    changed, and the same view answers the same question in the same way.
    """

    def logical_source(self, name: str) -> catalog.LogicalSource | None:
        """The logical source of that name."""

    def physical_sources(self, logical_uid: str) -> Sequence[catalog.PhysicalSource]:
        """What feeds a logical source, in any order."""

    def sink(self, name: str) -> catalog.Sink | None:
        """The sink of that name."""

    def agents(self) -> Sequence[catalog.Agent]:
        """All agents, in any order, with the slots that are in use."""

    def links(self) -> Sequence[catalog.NetworkLink]:
        """All links, in any order; none means that every agent reaches every other."""

    def logical_source_names(self) -> Sequence[str]:
        """Names of logical sources, asked for only to suggest one for a name that does not exist."""

    def sink_names(self) -> Sequence[str]:
        """Names of sinks, for the same."""

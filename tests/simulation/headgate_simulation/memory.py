"""What is kept for hours is not forgotten within a run, whatever the wall clocks say.

The leading coordinator forgets what is old by the catalog's clock, and believes a jump of that only when it has lasted
(docs/coordinator.md). No run lasts so long. The rows of these tables go by their age alone, and are numbered as they
come, so one that is missing leaves a gap.
"""

from __future__ import annotations

from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_simulation.violation import fail

_TABLES = ("requests", "story", "fenced_incarnations")
_COUNTED = " UNION ALL ".join(f"SELECT '{table}', COUNT(*), COALESCE(MAX(rowid), 0) FROM {table}" for table in _TABLES)


class Memory:
    def __init__(self, database: InlineDatabase) -> None:
        self._database = database
        self._most: dict[str, int] = {}

    def check(self) -> None:
        for table, count, last in self._database.raw.execute(_COUNTED):
            most = self._most[table] = max(self._most.get(table, 0), last)
            if count != most:
                fail("what is kept for hours is kept", f"{most - count} rows of {table} are gone within a run")

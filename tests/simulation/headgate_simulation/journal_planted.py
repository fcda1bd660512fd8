"""Bugs planted into the journal of agents, as in `planted.py`, for plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_JOURNAL = "headgate_agent.fragments.journal"
_RECORDS = "headgate_agent.fragments.records"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "a journal is not synced",
        "an agent answers when its record is written, and a power failure takes it",
        (Edit(f"{_JOURNAL}:FileJournal._write", "os.fdatasync(self._file)", "pass"),),
    ),
    Planted(
        "a torn tail stays in the journal",
        "what comes behind it cannot be read by the next process",
        (
            Edit(f"{_JOURNAL}:FileJournal._open", "if good < len(content):", "if False:"),
            Edit(f"{_JOURNAL}:FileJournal._open", "self._size = good", "self._size = len(content)"),
        ),
    ),
    Planted(
        "a torn record counts",
        "a record that was cut short is read as if it were whole",
        (
            Edit(f"{_JOURNAL}:_parse", "if len(header) < _HEADER or end > len(content):", "if len(header) < _HEADER:"),
            Edit(f"{_JOURNAL}:_parse", 'if zlib.crc32(record) != int.from_bytes(header[4:], "big"):', "if False:"),
        ),
    ),
    Planted(
        "a journal that is written anew is not synced",
        "what it says in few words may be gone, and with it all that it had said before",
        (Edit(f"{_JOURNAL}:FileJournal._replace", "os.fsync(file)", "pass"),),
    ),
    Planted(
        "a journal that is written anew forgets who has ended",
        "the next process runs again what was told to have ended",
        (
            Edit(
                f"{_RECORDS}:snapshot",
                "if held.state != REGISTERED and not held.ended:",
                "if held.state != REGISTERED:",
            ),
            Edit(f"{_RECORDS}:snapshot", "if held.ended:", "if False:"),
        ),
    ),
)

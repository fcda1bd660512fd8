"""Bugs planted into the journal of agents, as in `planted.py`, for plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_JOURNAL = "headgate_agent.fragments.journal"
_RECORDS = "headgate_agent.fragments.records"
_WRITTEN_AGAIN = "_write_at(self._file, content[found.last : found.end], found.last)"

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
            Edit(f"{_JOURNAL}:FileJournal._open", "self._cut(found.end)", "self._cut(len(content))"),
            Edit(f"{_JOURNAL}:FileJournal._open", "found.number, found.end", "found.number, len(content)"),
        ),
    ),
    Planted(
        "a torn record counts",
        "a group that was cut short, or lacks blocks, is read as if it were whole",
        (
            Edit(f"{_JOURNAL}:_body", "if start + length > len(content):", "if False:"),
            Edit(f"{_JOURNAL}:_body", "body if _check(number, position, body) == check else None", "body"),
        ),
    ),
    Planted(
        "zeros in a torn tail are taken for damage",
        "an agent does not start any more after a power failure that left more of a write than its beginning",
        (
            Edit(
                f"{_JOURNAL}:_parse",
                "any(_body(content, number, later) is not None for later in range(end + 1, len(content)))",
                'end + _HEADER.size + int.from_bytes(content[end : end + _HEADER.size][:4], "big") <= len(content)',
            ),
        ),
    ),
    Planted(
        "a journal that is read is not synced",
        "the process before died between a write and its sync; its successor acts on what a power failure takes",
        (
            Edit(f"{_JOURNAL}:FileJournal._open", _WRITTEN_AGAIN, "pass"),
            Edit(
                f"{_JOURNAL}:FileJournal._open",
                "self._cut(found.end)",
                "found.end < len(content) and self._cut(found.end)",
            ),
        ),
    ),
    Planted(
        "a sync is tried again",
        "what a failed sync was asked for is shown, synced once more with success, and not on the disk",
        (Edit(f"{_JOURNAL}:FileJournal._open", _WRITTEN_AGAIN, "pass"),),
    ),
    Planted(
        "the name of a journal that is read is not synced",
        "the process before died between a rename and its sync; what is written to the new file goes with the name",
        (Edit(f"{_JOURNAL}:FileJournal._open", "self._sync_name()", "pass"),),
    ),
    Planted(
        "a journal whose name is not certain is trusted",
        "what is written to it is gone when the old file is there again",
        (Edit(f"{_JOURNAL}:FileJournal.rewrite", "if self._number != before:", "if False:"),),
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

"""What a process costs, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid: int) -> float:
    """In user mode and in the kernel, of all its threads, since it began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int) -> float:
    """What of its memory is resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20

"""Settings of node-local sources and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate_common.config import Bytes, Seconds, setting


@dataclass(frozen=True, slots=True)
class FragmentConfig:
    """What sources and sinks on this agent's node may touch, and how much they do at once."""

    file_roots: tuple[Path, ...] = setting(
        (), "Folders under which FILE sources and sinks may read and write. None: no FILE source or sink runs here."
    )
    tcp_targets: tuple[str, ...] = setting(
        (),
        "What TCP sources may connect to, as host:port: a name with `*` in it, an address, a network such as "
        "10.0.0.0/8, and a port or `*`. None: no TCP source runs here.",
    )
    block_bytes: Bytes = setting(2 * 2**20, "How much of a file is decoded at once, into one Arrow batch.", minimum=64)
    step_bytes: Bytes = setting(
        2 * 2**20,
        "How much of it is read at once, if blocks are smaller (many small files). Appends that are ready together "
        "share one commit, up to four times as much.",
        minimum=64,
    )
    steps_ahead: int = setting(
        3, "Steps of a FILE source that are read and decoded ahead of what goes to its edge.", minimum=1
    )
    appends_ahead: int = setting(
        3,
        "Appends of a source to its edge that are on their way at once: one is written ahead, the others are made "
        "ready meanwhile.",
        minimum=1,
    )
    linger: Seconds = setting(
        0.05,
        "Shortest time between two small appends of a source to its edge: rows that come sooner wait, and are appended "
        "together. The first after a pause go at once.",
        minimum=0.0,
    )
    max_row_bytes: Bytes = setting(16 * 2**20, "The longest row of a file or connection.", minimum=64)
    batch_rows: int = setting(65_536, "Most rows that a GENERATOR source makes at once.", minimum=1)
    max_files: int = setting(10_000, "Most files that one FILE source reads or follows at a time.", minimum=1)
    rotated_grace: Seconds = setting(
        5.0, "How long a followed file that was renamed or removed is read on without growing.", minimum=0.0
    )
    reconnect_min: Seconds = setting(0.1, "Longest wait before the first new connection; it doubles.", minimum=0.001)
    reconnect_max: Seconds = setting(30.0, "Longest wait between two attempts to connect.", minimum=0.001)
    read_timeout: Seconds = setting(3600.0, "How long a connection may be silent before it is made anew.", minimum=0.1)
    flush_interval: Seconds = setting(
        0.2, "Time between two flushes of a sink, and so the longest that delivered rows wait for one.", minimum=0.0
    )
    flush_bytes: Bytes = setting(8 * 2**20, "How much may be delivered before it is made durable.", minimum=1)
    edge_read_bytes: Bytes = setting(4 * 2**20, "How much of an edge a sink reads at once.", minimum=1)
    edge_read_wait: Seconds = setting(1.0, "How long one read of an edge waits for rows.", minimum=0.001)
    topic_timeout: Seconds = setting(
        10.0, "How long a TOPIC sink waits for one answer about its topic before it asks again.", minimum=0.01
    )
    topic_read_bytes: Bytes = setting(
        4 * 2**20,
        "How much of its topic a TOPIC sink reads back at once, where it looks what it has written.",
        minimum=1,
    )
    edge_max_lag: Bytes = setting(
        64 * 2**20, "How much a source may be ahead of what its query has read; then it pauses.", minimum=1
    )
    threads: int = setting(4, "Threads that read and write files and encode rows.", minimum=1)
    sample_interval: Seconds = setting(1.0, "How often the built-in sources give a row about this agent.", minimum=0.01)
    leftover_interval: Seconds = setting(
        3600.0, "How often checkpoints of fragments that run no more are looked for in the object store.", minimum=0.01
    )
    leftover_grace: Seconds = setting(
        3600.0, "How long it must be known of a fragment that it runs no more until its checkpoint goes.", minimum=0.0
    )
    result_patience: Seconds = setting(
        15.0, "A temporary query whose rows nobody reads for so long ends.", minimum=0.01
    )

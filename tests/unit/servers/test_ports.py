"""A port that is given out stays its process's own."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ports
from tests.servers.ports import NoFreePort, free_port, free_port_base

ROOT = Path(__file__).resolve().parents[3]
ASK = """
import sys
from tests.servers import ports
low = int(sys.argv[1])
ports._LOWEST, ports._HIGHEST = low, low + 3
try:
    print(ports.free_port())
except ports.NoFreePort:
    print("none")
"""


def narrowed(monkeypatch: pytest.MonkeyPatch, width: int) -> int:
    """Lets only so many ports be given out from here on, all of them free now."""
    low = free_port_base(range(width))
    for offset in range(width):
        ports.os.close(ports._held.pop(low + offset))
    monkeypatch.setattr(ports, "_LOWEST", low)
    monkeypatch.setattr(ports, "_HIGHEST", low + width)
    return low


def test_a_port_is_given_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    low = narrowed(monkeypatch, 3)
    assert sorted(free_port() for _ in range(3)) == [low, low + 1, low + 2]
    with pytest.raises(NoFreePort):
        free_port()


def test_a_port_is_not_given_to_another_process_either(monkeypatch: pytest.MonkeyPatch) -> None:
    low = narrowed(monkeypatch, 3)
    mine = {free_port(), free_port()}
    asked = [sys.executable, "-c", ASK, str(low)]
    other = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert {int(other.stdout)} == {low, low + 1, low + 2} - mine
    free_port()
    other = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert other.stdout == "none\n"


def test_a_port_that_somebody_listens_on_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    low = narrowed(monkeypatch, 2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", low))
        assert free_port() == low + 1

"""Real processes: an agent's folder and object store are of one catalog, and no other is let near them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate.log.v1 import log_service_pb2_grpc
from tests.e2e.api.kit import START_SECONDS, Client, running_coordinator
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess

# What the catalog does not know goes as soon as somebody looks.
_EAGER = ("--set", "log.orphan_interval=100ms", "--set", "log.orphan_grace=0s", "--set", "log.wal_interval=100ms")
# So that only the look at whose the store is comes soon.
_PATIENT = ("--set", "log.orphan_interval=1h", "--set", "log.orphan_grace=1h", "--set", "log.retention_interval=100ms")
_ORPHAN = "topic-of-nobody/records.seg"
_RECORD = b"an acknowledged record"
_MARKS = ("headgate-catalog", "headgate-store")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent keeps everything."""

    folder: Path
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")

    def arguments(self, coordinator: str, *more: str, data: str = "data") -> list[str]:
        kept = ["--data", str(self.folder / data), "--object-store", str(self.folder / "objects")]
        named = ["--coordinator", coordinator, "--name", "a", "--listen", self.address, "--http-listen", "127.0.0.1:0"]
        plain = ["--kafka-listen", "", "--engine", "simulated", *_EAGER]
        return [sys.executable, "-m", "headgate_agent.server", *named, *kept, *plain, *more]

    def plant(self) -> None:
        """An object that no catalog knows."""
        planted = self.folder / "objects" / _ORPHAN
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_bytes(b"records")

    @property
    def planted(self) -> bool:
        return (self.folder / "objects" / _ORPHAN).exists()

    def files(self) -> dict[str, bytes]:
        """What must survive, by name."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in found
            if path.parent.name == "wal" or path.name in ("volume", "catalog", *_MARKS) or "topic-" in str(path)
        }


@contextmanager
def running(
    place: Place, coordinator: str, *more: str, data: str = "data", log_name: str = "agent.log"
) -> Iterator[ServerProcess]:
    """An agent that has registered."""
    arguments = place.arguments(coordinator, *more, data=data)
    command = Command(name="agent", arguments=arguments, log=place.folder / log_name)
    process = ServerProcess(command)
    client = Client(coordinator)
    try:
        process.wait_until_ready(lambda: [agent.present for agent in agents(client)] == [True], START_SECONDS)
        yield process
    finally:
        process.stop()


def agents(client: Client) -> list[catalog.Agent]:
    return list(client(catalog.ListAgentsRequest()).agents)


def refusal(place: Place, coordinator: str, *more: str, data: str = "data") -> str:
    """What an agent says that ends by itself."""
    arguments = place.arguments(coordinator, *more, data=data)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode != 0, done.stderr
    return done.stderr


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def left_on_the_disk(place: Place, coordinator: str) -> None:
    """An agent dies with acknowledged records that only its write-ahead log has."""
    with running(place, coordinator) as process:
        client = Client(coordinator)
        settings = log.TopicSettings(durability=log.DURABILITY_WAL)
        client(log.CreateTopicRequest(name="orders", partitions=1, settings=settings))
        eventually(lambda: leader(client) == "a")
        produce = log.ProduceRecordsRequest(topic="orders", records=[log.Record(value=_RECORD)])
        stub = log_service_pb2_grpc.LogServiceStub(Client(place.address).channel)
        stub.ProduceRecords(produce, timeout=30, wait_for_ready=True)
        os.kill(process.pid, signal.SIGKILL)
    assert any(_RECORD in content for name, content in place.files().items() if "wal/" in name)


def leader(client: Client) -> str:
    return str(client(log.ListPartitionsRequest(topic="orders")).partitions[0].leader)


def test_an_agent_that_is_pointed_at_another_catalog_ends_and_deletes_nothing_until_it_is_told_to_adopt(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    with running_coordinator(tmp_path, f"sqlite:///{tmp_path / 'one.db'}", name="one") as one:
        left_on_the_disk(place, one.address)
        place.plant()
        before = place.files()
        assert {"data/catalog", "data/volume", "objects/headgate-catalog", f"objects/{_ORPHAN}"} <= before.keys()
        with running_coordinator(tmp_path, f"sqlite:///{tmp_path / 'two.db'}", name="two") as two:
            said = refusal(place, two.address)
            assert "CATALOG_MISMATCH" in said and "--adopt-catalog" in said
            assert "CATALOG_MISMATCH" in refusal(place, two.address, data="fresh"), "the store is of the other"
            assert before.items() <= place.files().items()
            assert agents(Client(two.address)) == [], "it never was a member there"
            with running(place, two.address, "--adopt-catalog"):
                eventually(lambda: not place.planted)
            with running(place, two.address):
                pass
        assert "CATALOG_MISMATCH" in refusal(place, one.address), "what was adopted is of the first no more"


def test_a_catalog_that_is_exchanged_under_a_running_agent_ends_it_before_anything_is_let_go(tmp_path: Path) -> None:
    place, port = Place(tmp_path), f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        with running_coordinator(tmp_path, f"sqlite:///{tmp_path / 'one.db'}", "--listen", port, name="one"):
            left_on_the_disk(place, port)
            process = stack.enter_context(running(place, port))
            eventually(lambda: leader(Client(port)) == "a")
        place.plant()
        before = {name: content for name, content in place.files().items() if content}
        assert any(_RECORD in content for content in before.values())
        with running_coordinator(tmp_path, f"sqlite:///{tmp_path / 'two.db'}", "--listen", port, name="two"):
            eventually(lambda: "CATALOG_MISMATCH" in (tmp_path / "agent.log").read_text())
            eventually(lambda: not Path(f"/proc/{process.pid}").exists())
        assert before.items() <= place.files().items()


def test_a_store_that_is_adopted_under_a_running_agent_ends_it_with_the_line_of_the_start(tmp_path: Path) -> None:
    place = Place(tmp_path)
    other = Place(tmp_path)
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(running_coordinator(tmp_path, f"sqlite:///{tmp_path / name}.db", name=name))
            for name in ("one", "two")
        )
        process = stack.enter_context(running(place, one.address, *_PATIENT))
        eventually((tmp_path / "objects" / "headgate-catalog").exists)
        adopting = running(other, two.address, *_PATIENT, "--adopt-catalog", data="other", log_name="other.log")
        adopted = stack.enter_context(adopting)
        eventually(lambda: not Path(f"/proc/{process.pid}").exists())
        last = (tmp_path / "agent.log").read_text().splitlines()[-1]
        assert last.startswith("headgate-agent: CATALOG_MISMATCH: ") and "--adopt-catalog" in last
        eventually(lambda: [agent.present for agent in agents(Client(one.address))] == [False])
        again = refusal(place, one.address)
        assert "CATALOG_MISMATCH" in again, "and so does the next one on its folder"
        assert Path(f"/proc/{adopted.pid}").exists()

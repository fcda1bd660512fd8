"""Clients that ask again and again, or take their answers slowly, do not fill the agent's memory."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.log.answer_memory import AnswerMemory
from headgate_agent.log.led import Led
from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.test_every_version import create, produce
from tests.unit.kafka.wire import Wire, batch, frame, parse

MIB = 1 << 20


def only_led(cluster: Cluster) -> Led:
    """The first partition of the only topic."""
    (agent,) = cluster.agents.values()
    return next(led for key, led in agent.broker.led.items() if key.index == 0)


def answers(cluster: Cluster) -> AnswerMemory:
    return cluster.service.answers


def buffered(cluster: Cluster) -> int:
    (agent,) = cluster.agents.values()
    return agent.port.listener.buffered_bytes


def appends() -> int:
    """Tasks that append records; in the loop's thread."""
    return sum("_append" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def now(value: Any) -> Any:
    return value()


@pytest.mark.slow
def test_produces_that_timed_out_while_they_waited_for_room_leave_no_task_and_no_frame(
    cluster: Cluster, wire: Wire
) -> None:
    create(wire, "full")
    led = only_led(cluster)
    settings = led.partition.settings
    led.partition.settings = replace(settings, max_unflushed_bytes=-1)
    data = [{"name": "full", "partition_data": [{"index": 0, "records": batch(10_000)}]}]
    for _ in range(50):
        wire.send(0, 9, {"acks": -1, "timeout": 1000, "topic_data": data})
    cluster.run(cluster.until(lambda: led.partition._queued == 50))
    for _ in range(50):
        _, answer = parse(0, 9, wire.receive())
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.request_timed_out
    cluster.run(cluster.until(lambda: buffered(cluster) == 0))
    assert cluster.run(now(appends)) == 0
    assert led.partition._queued == 0
    led.partition.settings = settings
    assert produce(wire, "full") == 0, "nothing of what timed out was stored"


def fetch_all(name: str) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 60 * MIB}
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 60 * MIB,
        "topics": [{"topic": name, "partitions": [partition]}],
    }


def fill(wire: Wire, name: str, size: int) -> None:
    create(wire, name)
    records = batch(50_000)
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
    for _ in range(size // len(records)):
        answer = wire.ask(0, 9, {"acks": -1, "timeout": 5000, "topic_data": data})
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def slow_reader(cluster: Cluster) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = cluster.bootstrap.rpartition(":")
    made.connect((host, int(port)))
    return made


@pytest.mark.slow
def test_answers_that_slow_clients_do_not_take_are_bounded_and_others_are_served(tmp_path: Path) -> None:
    limit = 8 * MIB
    limits = KafkaLimits(drain=0.5, stalled=2.0, answer_bytes=limit)
    with running_cluster(tmp_path, limits=limits) as cluster, ExitStack() as stack:
        with Wire(cluster.bootstrap) as wire:
            fill(wire, "big", 16 * MIB)
        memory = answers(cluster)
        slow = [stack.enter_context(slow_reader(cluster)) for _ in range(20)]
        for one in slow:
            # The operating system takes some megabytes of the first.
            one.sendall(frame(1, 11, fetch_all("big")) * 10)
        cluster.run(cluster.until(lambda: memory.contended))
        assert memory.used <= limit + MIB
        # They move, so that they are not cut off for taking nothing; slowly, all the same.
        with Wire(cluster.bootstrap) as wire:
            wire.send(1, 11, fetch_all("big"))
            wire.socket.settimeout(0.05)
            answer = b""
            until = time.monotonic() + 20
            while not answer and time.monotonic() < until:
                for one in slow:
                    _sip(one)
                assert memory.used <= limit + MIB
                answer = _peek(wire)
            assert len(answer) > 0, "a client that takes its answers is served"
        for one in slow:
            one.close()
        cluster.run(cluster.until(lambda: memory.used == 0))


def _sip(one: socket.socket) -> None:
    try:
        one.recv(100, socket.MSG_DONTWAIT)
    except OSError:
        return


def _peek(wire: Wire) -> bytes:
    try:
        return wire.socket.recv(4, socket.MSG_PEEK)
    except TimeoutError:
        return b""


def test_many_clients_that_read_at_once_all_get_everything(tmp_path: Path) -> None:
    limits = KafkaLimits(drain=0.5, answer_bytes=2 * MIB)
    with running_cluster(tmp_path, limits=limits, kept_bytes=0) as cluster, ExitStack() as stack:
        with Wire(cluster.bootstrap) as wire:
            fill(wire, "big", 4 * MIB)
        end = only_led(cluster).bounds.high_watermark
        wires = [stack.enter_context(Wire(cluster.bootstrap)) for _ in range(6)]
        at = dict.fromkeys(wires, 0)
        for _ in range(200):
            behind = [wire for wire in wires if at[wire] < end]
            for wire in behind:
                request = fetch_all("big")
                request["topics"][0]["partitions"][0]["fetch_offset"] = at[wire]
                wire.send(1, 11, request)
            for wire in behind:
                _, answer = parse(1, 11, wire.receive())
                (part,) = answer.responses[0].partitions
                assert part.error_code is ErrorCode.none
                records = part.records or b""
                position = 0
                while position < len(records):
                    base, length = struct.unpack_from(">qi", records, position)
                    (delta,) = struct.unpack_from(">i", records, position + 23)
                    at[wire] = base + delta + 1
                    position += 12 + length
            if not behind:
                break
        assert set(at.values()) == {end}
        cluster.run(cluster.until(lambda: answers(cluster).used == 0))

"""Nothing that a client sends, or does not send, hurts the others."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.log.record_batch import encode
from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.test_every_version import create, produce
from tests.unit.kafka.wire import Wire, batch, frame

MIB = 1 << 20


def works(cluster: Cluster) -> None:
    with Wire(cluster.bootstrap) as wire:
        assert wire.ask(18, 3).error_code is ErrorCode.none


def listener(cluster: Cluster) -> Any:
    (agent,) = cluster.agents.values()
    return agent.port.listener


@contextmanager
def limited(folder: Path, **limits: Any) -> Iterator[Cluster]:
    with running_cluster(folder, limits=KafkaLimits(drain=0.5, **limits)) as cluster:
        yield cluster


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 2**31 - 1, 100 * MIB + 1])
def test_a_length_that_cannot_be_closes_the_connection(cluster: Cluster, length: int) -> None:
    with Wire(cluster.bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", length) + b"x" * 100)
        assert wire.closed()
    works(cluster)


def test_a_length_alone_costs_no_memory(cluster: Cluster) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.bootstrap)) for _ in range(50)]
        for wire in wires:
            wire.socket.sendall(struct.pack(">i", 100 * MIB) + b"x" * 10)
        cluster.run(cluster.until(lambda: listener(cluster).connections >= 50))
        works(cluster)
        assert listener(cluster).buffered_bytes <= 50 * MIB
    cluster.run(cluster.until(lambda: listener(cluster).buffered_bytes == 0))


def test_random_bytes_close_their_connection_or_are_answered(cluster: Cluster) -> None:
    source = random.Random(5)
    for _ in range(200):
        with Wire(cluster.bootstrap) as wire:
            body = source.randbytes(source.randrange(0, 200))
            wire.socket.sendall(struct.pack(">i", len(body)) + body)
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.receive():
                continue
    works(cluster)
    cluster.run(cluster.until(lambda: listener(cluster).buffered_bytes == 0))


def test_random_bodies_behind_a_good_header_close_their_connection_or_are_answered(cluster: Cluster) -> None:
    source = random.Random(6)
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            body = struct.pack(">hhih", api.key, version, 1, -1) + source.randbytes(source.randrange(0, 60))
            with Wire(cluster.bootstrap) as wire:
                wire.socket.sendall(struct.pack(">i", len(body)) + body)
                wire.socket.shutdown(socket.SHUT_WR)
                while wire.receive():
                    continue
    works(cluster)
    cluster.run(cluster.until(lambda: listener(cluster).buffered_bytes == 0))


def test_a_frame_may_come_byte_by_byte(wire: Wire) -> None:
    request = frame(18, 3, {"client_software_name": "slow", "client_software_version": "1"})
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(2):
        for index in range(len(request)):
            wire.socket.sendall(request[index : index + 1])
        assert wire.receive()


def test_many_frames_may_come_at_once(wire: Wire) -> None:
    wire.socket.sendall(b"".join(frame(18, 0, {}, correlation=number) for number in range(500)))
    assert [struct.unpack_from(">i", wire.receive())[0] for _ in range(500)] == list(range(500))


@pytest.mark.slow
def test_half_a_frame_does_not_stay_for_ever(tmp_path: Path) -> None:
    with limited(tmp_path, stalled=0.3) as cluster:
        for begin in (b"\0", b"\0\0\0\x20", b"\0\0\0\x20abc", struct.pack(">i", 5 * MIB) + b"x" * 2 * MIB):
            with Wire(cluster.bootstrap) as wire:
                wire.socket.sendall(begin)
                assert wire.closed()
        cluster.run(cluster.until(lambda: listener(cluster).buffered_bytes == 0))
        works(cluster)


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, idle=0.3) as cluster, Wire(cluster.bootstrap) as wire:
        assert wire.ask(18, 0).error_code is ErrorCode.none
        assert wire.closed()


def test_a_thousand_idle_connections_leave_room_for_work(cluster: Cluster) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(Wire(cluster.bootstrap))
        cluster.run(cluster.until(lambda: listener(cluster).connections >= 1000))
        with Wire(cluster.bootstrap) as wire:
            create(wire, "busy")
            assert [produce(wire, "busy") for _ in range(20)] == [3 * number for number in range(20)]
    cluster.run(cluster.until(lambda: listener(cluster).connections == 0))


def test_more_connections_than_allowed_are_closed(tmp_path: Path) -> None:
    with limited(tmp_path, connections=5) as cluster, ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.bootstrap)) for _ in range(5)]
        for wire in wires:
            wire.ask(18, 0)
        with Wire(cluster.bootstrap) as sixth:
            assert sixth.closed()
        wires[0].socket.close()
        cluster.run(cluster.until(lambda: listener(cluster).connections == 4))
        works(cluster)


@pytest.mark.slow
def test_a_client_that_takes_no_answers_is_held_back_then_cut_off(tmp_path: Path) -> None:
    with limited(tmp_path, stalled=1.0, write_buffer=64 * 1024) as cluster:
        with Wire(cluster.bootstrap) as wire:
            create(wire, "big")
            value = {"index": 0, "records": batch(1000)}
            for _ in range(20):
                data = [{"name": "big", "partition_data": [value]}]
                wire.ask(0, 9, {"acks": -1, "timeout": 5000, "topic_data": data})
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = cluster.bootstrap.rpartition(":")
        slow.connect((host, int(port)))
        slow.settimeout(0.5)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10 * MIB}
        fetch = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 10 * MIB,
            "topics": [{"topic": "big", "partitions": [partition]}],
        }
        request = frame(1, 11, fetch)
        sent = 0
        with pytest.raises(OSError):
            for _ in range(100_000):
                slow.sendall(request)
                sent += 1
        assert sent < 100_000
        works(cluster)
        cluster.run(cluster.until(lambda: listener(cluster).connections == 0))
        slow.close()


@pytest.mark.slow
def test_memory_for_requests_is_bounded_over_all_connections(tmp_path: Path) -> None:
    with limited(tmp_path, buffered_bytes=4 * MIB, stalled=1.0) as cluster, ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.bootstrap)) for _ in range(40)]
        most = 0
        for wire in wires:
            wire.socket.settimeout(0.05)
            try:
                wire.socket.sendall(struct.pack(">i", 3 * MIB) + b"x" * MIB)
            except OSError:
                continue
            most = max(most, listener(cluster).buffered_bytes)
        assert most < 16 * MIB
        cluster.run(cluster.until(lambda: listener(cluster).buffered_bytes == 0))
        works(cluster)


def test_a_request_that_waits_for_room_is_answered_when_there_is(tmp_path: Path) -> None:
    with limited(tmp_path, buffered_bytes=2 * MIB) as cluster, ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.bootstrap)) for _ in range(8)]
        create(wires[0], "room")
        data = [{"name": "room", "partition_data": [{"index": 0, "records": batch(60_000)}]}]
        for _ in range(3):
            for wire in wires:
                wire.send(0, 9, {"acks": -1, "timeout": 20_000, "topic_data": data})
            for wire in wires:
                assert wire.receive()
        assert listener(cluster).buffered_bytes == 0


def test_answers_come_in_the_order_of_requests_also_if_an_earlier_one_waits(wire: Wire) -> None:
    create(wire, "order")
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    waits = {
        "replica_id": -1,
        "max_wait": 300,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [{"topic": "order", "partitions": [partition]}],
    }
    sent = [wire.send(1, 11, waits), wire.send(18, 0, {}), wire.send(18, 3, {})]
    assert [struct.unpack_from(">i", wire.receive())[0] for _ in sent] == sent


def test_pipelined_produces_are_stored_in_their_order(wire: Wire) -> None:
    create(wire, "pipelined")
    for number in range(50):
        records = batch(1, producer=(77, 0, number))
        data = [{"name": "pipelined", "partition_data": [{"index": 0, "records": records}]}]
        wire.send(0, 9, {"acks": -1, "timeout": 20_000, "topic_data": data})
    from tests.unit.kafka.wire import parse

    answers = [parse(0, 9, wire.receive())[1].responses[0].partition_responses[0] for _ in range(50)]
    assert {answer.error_code for answer in answers} == {ErrorCode.none}
    assert [answer.base_offset for answer in answers] == list(range(50))


def test_a_produce_without_acknowledgement_gets_no_answer(wire: Wire) -> None:
    create(wire, "silent")
    data = [{"name": "silent", "partition_data": [{"index": 0, "records": batch(3)}]}]
    wire.send(0, 9, {"acks": 0, "timeout": 5000, "topic_data": data})
    assert wire.ask(18, 3).error_code is ErrorCode.none, "the next answer is the next request's"
    assert produce(wire, "silent") == 3


def test_a_failed_produce_without_acknowledgement_closes_the_connection(wire: Wire) -> None:
    data = [{"name": "absent", "partition_data": [{"index": 0, "records": batch(3)}]}]
    wire.send(0, 9, {"acks": 0, "timeout": 5000, "topic_data": data})
    assert wire.closed()


@pytest.mark.slow
def test_damaged_records_are_refused(wire: Wire) -> None:
    create(wire, "damaged")
    good = batch(3)

    def outcome(records: bytes | None) -> ErrorCode:
        data = [{"name": "damaged", "partition_data": [{"index": 0, "records": records}]}]
        answer = wire.ask(0, 9, {"acks": -1, "timeout": 5000, "topic_data": data})
        code = answer.responses[0].partition_responses[0].error_code
        assert isinstance(code, ErrorCode)
        return code

    assert outcome(good[:-1] + b"\xff") is ErrorCode.corrupt_message
    assert outcome(good[:-5]) is ErrorCode.corrupt_message
    assert outcome(good[:16] + b"\1" + good[17:]) is ErrorCode.corrupt_message
    assert outcome(None) is ErrorCode.invalid_record
    assert outcome(batch(400_000)) is ErrorCode.message_too_large
    assert outcome(bytes(encode(b"", 1, timestamp=int(time.time() * 1_000_000)))) is ErrorCode.invalid_timestamp
    assert produce(wire, "damaged") == 0


def test_a_stop_lets_requests_in_flight_finish(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster, Wire(cluster.bootstrap) as wire:
        create(wire, "drain")
        sent = [wire.send(0, 9, _three("drain")) for _ in range(5)]
        time.sleep(0.05)
        cluster.run(listener(cluster).close())
        answered = 0
        while wire.receive():
            answered += 1
        assert answered == len(sent)


def _three(name: str) -> dict[str, Any]:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch(3)}]}]
    return {"acks": -1, "timeout": 5000, "topic_data": data}

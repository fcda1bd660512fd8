"""Topics and records by grpcurl alone, as someone without any client library would use them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate_agent.log.records import unpack_batches
from tests.e2e.log.kit import log_of
from tests.servers.grpcurl import Grpcurl

pytestmark = [pytest.mark.slow, pytest.mark.grpcurl]


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def moment_of(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"


def test_every_call_about_plain_records_and_batches_works_by_grpcurl(tmp_path: Path, grpcurl: Grpcurl) -> None:
    with log_of(tmp_path, "a", "b") as log:
        coordinator = log.cluster.coordinator.address
        one, other = (log.cluster.agents[name].address for name in ("a", "b"))

        def ask(address: str, method: str, **request: Any) -> Any:
            answer = grpcurl.run("-plaintext", "-d", json.dumps(request), address, f"headgate.log.v1.{method}")
            assert answer.returncode == 0, answer.stderr
            documents = [json.loads(part) for part in _documents(answer.stdout)]
            return documents if method in _STREAMS else documents[0]

        def refused(address: str, method: str, **request: Any) -> str:
            answer = grpcurl.run("-plaintext", "-d", json.dumps(request), address, f"headgate.log.v1.{method}")
            assert answer.returncode != 0
            return answer.stderr

        topic = ask(coordinator, "TopicService.CreateTopic", name="orders", partitions=3)["topic"]
        log.produce("orders", 0, b"first")
        # Behind everything else, and within what agents take of times to come.
        soon = datetime.now(UTC).replace(microsecond=123_000) + timedelta(days=30)
        records = [
            {"key": text("k1"), "value": text("v1"), "headers": [{"key": "trace", "value": text("t")}]},
            {"key": text("k2"), "value": text("v2"), "timestamp": moment_of(soon)},
        ]
        positions = ask(one, "LogService.ProduceRecords", topic="orders", records=records)["positions"]
        assert len(positions) == 2
        by_key: dict[str, Any] = {}
        for partition in range(3):
            answer = ask(other, "LogService.FetchRecords", topic="orders", partition=partition)
            by_key |= {record.get("key", ""): record for record in answer.get("records", [])}
        assert by_key[text("k1")]["headers"] == [{"key": "trace", "value": text("t")}]
        assert by_key[text("k2")]["timestamp"] == moment_of(soon)
        tailed = ask(one, "LogService.TailRecords", topic="orders", until_end=True)
        assert sum(len(page["records"]) for page in tailed) == 3

        offsets = ask(one, "LogService.ListOffsets", topic="orders", time=moment_of(soon - timedelta(days=1)))[
            "offsets"
        ]
        assert sum(int(each.get("high_watermark", 0)) for each in offsets) == 3
        moment = int(by_key[text("k2")].get("partition", 0))
        found = {each.get("partition", 0): int(each.get("offset_at_time", 0)) for each in offsets}
        assert found[moment] == int(by_key[text("k2")].get("offset", 0))

        committed = [{"topic": "orders", "partition": 0, "offset": 1}]
        ask(one, "LogService.CommitOffsets", group="readers", offsets=committed)
        (lag,) = ask(other, "LogService.GetOffsets", group="readers")["offsets"]
        assert lag["offset"]["offset"] == "1"
        assert int(lag.get("lag", 0)) == int(lag["high_watermark"]) - 1

        leader = log.cluster.agents[log.leaders("orders")[0]].address
        elsewhere = other if leader == one else one
        part = {"topic_uid": topic["uid"], "partition": 0}
        batches = ask(leader, "LogService.Fetch", parts=[part])["parts"][0]["batches"]
        again = ask(leader, "LogService.Produce", parts=[{**part, "batches": batches}])["parts"][0]
        assert int(again["base_offset"]) > 0
        streamed = ask(leader, "LogService.StreamProduce", parts=[{**part, "batches": batches}])
        assert int(streamed[0]["parts"][0]["base_offset"]) > int(again["base_offset"])
        # The stream has no end of its own: what came until grpcurl gave up.
        followed = grpcurl.run(
            *("-plaintext", "-max-time", "2", "-d", json.dumps({"parts": [part]})),
            *(leader, "headgate.log.v1.LogService.StreamFetch"),
        )
        assert followed.returncode != 0 and "DeadlineExceeded" in followed.stderr
        fetched = [json.loads(each)["fetched"] for each in _documents(followed.stdout)]
        stored = b"".join(base64.b64decode(each["batches"]) for each in fetched)
        end = int(fetched[-1]["high_watermark"])
        assert end == int(streamed[0]["parts"][0]["base_offset"]) + len(list(unpack_batches(base64.b64decode(batches))))
        assert [record.offset for record in unpack_batches(stored)] == list(range(end))
        (told,) = ask(elsewhere, "LogService.StreamFetch", parts=[part])
        assert told["fetched"]["error_reason"] == "NOT_LEADER"
        assert told["fetched"]["leader_address"] == leader, "it says where to ask"
        refusal = ask(elsewhere, "LogService.Produce", parts=[{**part, "batches": batches}])["parts"][0]
        assert refusal["error_reason"] == "NOT_LEADER"
        local = refused(
            elsewhere, "LogService.DeleteRecords", topic="orders", partition=0, before_offset=1, local_only=True
        )
        assert "NOT_LEADER" in local and leader in local

        start = ask(elsewhere, "LogService.DeleteRecords", topic="orders", partition=0, before_offset=-1)["log_start"]
        gone = refused(one, "LogService.FetchRecords", topic="orders", partition=0, **{"from": {"offset": 0}})
        assert "OFFSET_OUT_OF_RANGE" in gone and start in gone
        assert "UNKNOWN_PARTITION" in refused(one, "LogService.ListOffsets", topic="nothing")


_STREAMS = ("LogService.TailRecords", "LogService.StreamProduce", "LogService.StreamFetch")


def _documents(output: str) -> list[str]:
    """grpcurl prints one JSON document after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    output = output.strip()
    while at < len(output):
        _, end = decoder.raw_decode(output, at)
        found.append(output[at:end])
        at = end
        while at < len(output) and output[at].isspace():
            at += 1
    return found or ["{}"]

"""Settings of topics on the command line mean what they mean in SQL and to Kafka clients."""

from __future__ import annotations

import pytest
import typer

from headgate.log import v1 as log
from headgate_cli import topic_settings


def test_both_names_of_a_setting_mean_the_same() -> None:
    ours = topic_settings.read(["retention=24h", "retention-bytes=1GiB", "linger=5ms"])
    theirs = topic_settings.read(["retention.ms=86400000", "retention.bytes=1073741824", "headgate.linger.ms=5"])
    assert ours == theirs
    assert [topic_settings.name_of(name) for name in ("retention.ms", "segment-bytes")] == [
        "retention",
        "segment_bytes",
    ]


def test_no_limit_is_minus_one_under_the_names_of_kafka_and_zero_under_ours() -> None:
    without = log.TopicSettings(retention={}, retention_bytes=0)
    assert topic_settings.read(["retention=0s", "retention_bytes=0"]) == without
    assert topic_settings.read(["retention.ms=-1", "retention.bytes=-1"]) == without


@pytest.mark.parametrize("text", ["retention.ms=0", "retention.bytes=0", "retention=-1", "colour=red", "linger"])
def test_what_makes_no_sense_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        topic_settings.read([text])


def test_a_setting_that_there_is_not_is_named() -> None:
    with pytest.raises(typer.BadParameter, match="no setting colour"):
        topic_settings.name_of("colour")

"""Native topics, read from the agents that lead them over gRPC (`executor/topics.py`).

Where a query begins is found out once and kept beside its checkpoint: a first batch that is done again reads the same
records. That is before the first batch, unless the plan says it, as it does where topics are read from their end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_engine.executor.channels import GivenUp, never
from headgate_engine.executor.log_calls import LogClient, TopicAccess, first_offsets
from headgate_engine.executor.reading import schema_text
from headgate_engine.executor.required import paths_text
from headgate_engine.executor.topics import TopicSource
from headgate_engine.executor.wire import EdgeError
from headgate_engine.fragments.read import Pace
from headgate_engine.fragments.records import decoded, format_of, named, rows_with_bad
from headgate_engine.fragments.storage import read_text, write_text
from headgate_engine.types import arrow_of, required, struct_of

_RECORDS = "value binary, partition int, offset bigint"


@dataclass(frozen=True, slots=True)
class NativeTopic:
    """One native topic that a run reads. `folder` is where the run keeps what must outlive it."""

    index: int
    plan: catalog.ComputeInput
    access: TopicAccess
    folder: str
    # Where it begins, if that was found at deployment.
    start: catalog.TopicStart | None = None

    def rows(self, session: SparkSession, start: str, pace: Pace, *, fail: bool, given_up: GivenUp) -> DataFrame:
        """The rows of the topic as a stream, with BAD."""
        reader = (
            session.readStream.format(TopicSource.name())
            .option("access_secret", self.access.to_json())
            .option("first", json.dumps(self.first(session, start, given_up)))
            .options(**pace.options())
        )
        if format_of(self.plan.topic) != "ARROW":
            return decoded(reader.option("columns", _RECORDS).load(), self.plan, fail=fail)
        reader = reader.option("arrow", schema_text(arrow_of(struct_of(self.plan.schema))))
        reader = reader.option("required", paths_text(required(self.plan.schema)))
        reader = reader.option("fail", named(self.plan.topic) if fail else "")
        return reader.option("columns", rows_with_bad(self.plan)).load()

    def first(self, session: SparkSession, start: str = "", given_up: GivenUp = never) -> dict[str, int]:
        """The offsets at which the query begins, as its first start found them."""
        path = f"{self.folder}/first-{self.index}.json"
        known = read_text(session, path)
        if known is not None:
            return _offsets(json.loads(known), self.access)
        if self.start is not None:
            return self._keep(session, path, self._deployed(self.start))
        start = start or self.plan.topic.options.get("start", "earliest")
        if start not in ("earliest", "latest") and not start.isdigit():
            raise HeadgateError(INVALID_ARGUMENT, f"start = {start!r}: earliest, latest or microseconds since 1970")
        bounds = LogClient(self.access, given_up).offsets(int(start) if start.isdigit() else None)
        return self._keep(session, path, first_offsets(bounds, start))

    def _keep(self, session: SparkSession, path: str, first: dict[str, int]) -> dict[str, int]:
        write_text(session, path, self.offset(first))
        # Another run may have been first.
        return _offsets(json.loads(read_text(session, path) or ""), self.access)

    def _deployed(self, start: catalog.TopicStart) -> dict[str, int]:
        first = {str(index): offset for index, offset in enumerate(start.offsets)}
        return _offsets({"topic": start.topic_uid, "offsets": first}, self.access)

    def records(self, session: SparkSession, start: str, until: str) -> DataFrame:
        """The records between two offsets, as the stream writes them down."""
        return (
            session.read.format(TopicSource.name())
            .option("access_secret", self.access.to_json())
            .option("columns", _RECORDS)
            .option("from", json.dumps(json.loads(start)["offsets"]))
            .option("until", json.dumps(json.loads(until)["offsets"]))
            .load()
        )

    def offset(self, first: dict[str, int]) -> str:
        """Offsets as the stream writes them down."""
        return json.dumps({"topic": self.access.topic_uid, "offsets": first})


def _offsets(kept: Any, access: TopicAccess) -> dict[str, int]:
    """Those that were kept, unless they are those of a former topic of the same name."""
    if kept["topic"] != access.topic_uid:
        raise EdgeError("DATA_LOSS", f"topic {access.topic} was created again: the query began with {kept['topic']}")
    return {str(index): int(offset) for index, offset in kept["offsets"].items()}

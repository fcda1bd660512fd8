"""From where to where a batch reads a topic, as Spark writes offsets down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def read_ranges(plan: Any, observation: str) -> set[tuple[str, str]]:
    """What the present batch reads of one input: the streams below its observation in the plan of the batch, in which
    Spark has written from where to where it reads each. Another input may read the same topic at another pace."""
    ranges = set()
    for node in _nodes(plan):
        if node.getClass().getSimpleName() != "CollectMetrics" or node.name() != observation:
            continue
        for leaf in _nodes(node):
            # A stream without anything new is no such relation in this batch.
            if leaf.getClass().getSimpleName() != "StreamingDataSourceV2ScanRelation":
                continue
            begin, end = leaf.startOffset(), leaf.endOffset()
            if begin.isDefined() and end.isDefined():
                ranges.add((begin.get().json(), end.get().json()))
    return ranges


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def reported_ranges(report: Mapping[str, Any], topic: str, first: Callable[[int], str]) -> set[tuple[str, str]]:
    """What a batch that is over has read of a Kafka topic, out of its progress report. The first batch does not say
    where it began: `first` knows that of each source of the query, by its number."""
    ranges = set()
    for number, source in enumerate(report.get("sources", ())):
        begin, end = source.get("startOffset"), source.get("endOffset")
        if f"Subscribe[{topic}]" in source.get("description", "") and end and begin != end:
            ranges.add((_text(begin) if begin else first(number), _text(end)))
    return ranges


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)

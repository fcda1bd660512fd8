"""Spark's exceptions as typed failures: a reason, Spark's error class, one clear sentence, and whether it may pass.

Spark wraps: a division by zero comes as the failure of a stream, of a foreachBatch function, of a job and of a task.
What is told is the innermost error that has a class; where there is none, the innermost message.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from headgate.engine import v1 as engine
from headgate_common.errors import DEADLINE_EXCEEDED, OVERLOADED, SHUTTING_DOWN, UNREACHABLE, HeadgateError, Reason
from headgate_common.kafka_reasons import KAFKA_TOPIC_MISSING, KAFKA_UNREACHABLE
from headgate_engine.errors import (
    BAD_RECORD,
    CHECKPOINT_INVALID,
    CHECKPOINT_UNREACHABLE,
    EDGE_DATA_LOST,
    EDGE_FAILED,
    ENGINE_WARMING_UP,
    PLAN_UNSUPPORTED,
    QUERY_FAILED,
    QUERY_INVALID,
    SPARK_FAILED,
    SPARK_UNAVAILABLE,
    STALE_EPOCH,
)
from headgate_engine.executor.wire import EdgeError

# What Spark wraps other errors in.
_WRAPPERS = frozenset(
    {
        "STREAM_FAILED",
        "FOREACH_BATCH_USER_FUNCTION_ERROR",
        "FOREACH_USER_FUNCTION_ERROR",
        "TASK_WRITE_FAILED",
        "FAILED_EXECUTE_UDF",
        "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR",
    }
)
_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_SQLSTATE = re.compile(r"SQLSTATE:\s*([0-9A-Z]{5})")
_EDGE = re.compile(r"EdgeError: ([A-Z_]+): ([^\n]*)")
_BAD_RECORD = re.compile(r"BAD_RECORD: ([^\n]*)")
# What Kafka's clients say. The second also stands for brokers that do not answer a producer.
_NO_TOPIC = re.compile(r"UnknownTopicOrPartitionException|UnknownTopicIdException")
_NO_BROKERS = re.compile(
    r"kafka\.common\.errors\.TimeoutException|No resolvable bootstrap urls|Couldn't resolve server|"
    r"Topic \S+ not present in metadata"
)
_PYTHON = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
# Classes of SQLSTATE that the same data and the same SQL bring again.
_DATA = ("22",)
_SQL = ("42", "0A", "07", "21", "2B", "2D", "56")
_CHECKPOINT = re.compile(
    r"CANNOT_LOAD_STATE|CHECKPOINT|STATE_STORE_(?:KEY|VALUE)|INVALID_LOG_VERSION|STREAMING_STATEFUL_OPERATOR"
)
_TRANSIENT_REASONS = frozenset(
    {
        UNREACHABLE,
        OVERLOADED,
        SHUTTING_DOWN,
        DEADLINE_EXCEEDED,
        EDGE_FAILED,
        SPARK_FAILED,
        SPARK_UNAVAILABLE,
        ENGINE_WARMING_UP,
        KAFKA_UNREACHABLE,
        CHECKPOINT_UNREACHABLE,
    }
)
# Reasons of agents: records that are gone, and what the same call would bring again.
_LOST = ("DATA_LOSS", "OFFSET_OUT_OF_RANGE", "DATA_DAMAGED", "CORRUPT_BATCH")
_FINAL = frozenset(
    {
        "INVALID_ARGUMENT",
        "MESSAGE_TOO_LARGE",
        "PERMISSION_DENIED",
        "RECORDS_REFUSED",
        "RECORD_TOO_LARGE",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED",
    }
)
_RAISED = "USER_RAISED_EXCEPTION"
_LONGEST = 600


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run or a batch failed."""

    reason: Reason
    message: str
    error_class: str = ""
    transient: bool = False
    trace: str = ""

    def to_proto(self) -> engine.RunError:
        return engine.RunError(
            reason=self.reason.name,
            error_class=self.error_class,
            message=self.message,
            transient=self.transient,
            trace=self.trace,
        )

    def to_error(self) -> HeadgateError:
        metadata = {"error_class": self.error_class} if self.error_class else {}
        if self.trace:
            metadata["trace"] = self.trace
        return HeadgateError(self.reason, self.message, metadata=metadata)


def failure_of(error: BaseException, *, traces: bool = False) -> Failure:
    """What to tell of an exception."""
    trace = _trace(error) if traces else ""
    if isinstance(error, HeadgateError):
        return Failure(error.reason, error.message, transient=error.reason in _TRANSIENT_REASONS, trace=trace)
    if isinstance(error, EdgeError):
        return _of_edge(error.reason, error.message, trace)
    text = str(error)
    edge = _EDGE.search(text)
    if edge:
        return _of_edge(edge[1], edge[2], trace)
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return Failure(
            SPARK_UNAVAILABLE, "the connection to Spark's JVM broke: it has died", transient=True, trace=trace
        )
    kafka = _of_kafka(f"{text}\n{_root_message(error)}", trace)
    if kafka is not None:
        return kafka
    classes = [found for found in _classes(error, text) if found[0] not in _WRAPPERS]
    if classes:
        name, state, message = classes[-1]
        raised = _BAD_RECORD.search(message)
        if name == _RAISED and raised:
            return Failure(BAD_RECORD, sentence(raised[1]), trace=trace)
        reason = _reason(name, state)
        return Failure(reason, _told(message), name, reason in _TRANSIENT_REASONS, trace)
    message = _root_message(error) or _told(text) or type(error).__name__
    return Failure(SPARK_FAILED, message, transient=True, trace=trace)


def _trace(error: BaseException) -> str:
    """Java's stack trace, which pyspark keeps apart, and behind it Python's: what is too long for an answer loses its
    end."""
    java, python = getattr(error, "_stackTrace", None) or "", "".join(traceback.format_exception(error))
    return f"{java}\n\n{python}" if java and java not in python else python


def _of_kafka(text: str, trace: str) -> Failure | None:
    if _NO_TOPIC.search(text):
        return Failure(KAFKA_TOPIC_MISSING, "a Kafka topic of the query is not there any more", trace=trace)
    if _NO_BROKERS.search(text):
        return Failure(KAFKA_UNREACHABLE, "the brokers of a Kafka topic do not answer", transient=True, trace=trace)
    return None


def _told(text: str) -> str:
    """One sentence; of a Python trace in the text only the error at its end."""
    head, traced, tail = text.partition("Traceback (most recent call last):")
    if not traced:
        return sentence(text)
    python = _PYTHON.findall(tail)
    return f"{sentence(head)}: {': '.join(python[-1])}".lstrip(": ") if python else sentence(head)


def _of_edge(reason: str, message: str, trace: str) -> Failure:
    """What agents answer, and what executors find in what they answered."""
    for own in (STALE_EPOCH, BAD_RECORD, PLAN_UNSUPPORTED):
        if reason == own.name:
            return Failure(own, message, trace=trace)
    if reason in _LOST:
        return Failure(EDGE_DATA_LOST, message, trace=trace)
    return Failure(EDGE_FAILED, f"{message} ({reason})", transient=reason not in _FINAL, trace=trace)


def _classes(error: BaseException, text: str) -> Iterator[tuple[str, str, str]]:
    """(class, SQLSTATE, message) from the outermost to the innermost error that Spark knows."""
    found = list(_java_classes(error))
    if found:
        yield from found
        return
    condition = getattr(error, "getCondition", lambda: None)()
    if condition:
        yield condition, getattr(error, "getSqlState", lambda: "")() or "", text
    marks = [match for match in _CLASS.finditer(text) if match[1] != condition]
    for match in marks:
        state = _SQLSTATE.search(text, match.end())
        yield match[1], state[1] if state else "", text[match.start() :]


def _java_classes(error: BaseException) -> Iterator[tuple[str, str, str]]:
    """Along the causes of the Java exception, where the JVM still answers."""
    throwable: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    try:
        for _ in range(20):
            if throwable is None:
                return
            if hasattr(throwable, "getCondition") and throwable.getCondition():
                yield throwable.getCondition(), throwable.getSqlState() or "", throwable.getMessage() or ""
            throwable = throwable.getCause()
    except Py4JError:
        return


def causes_of(error: BaseException) -> list[str]:
    """Kind and message of each Java exception along the causes, the outermost first; of a Python one, its own."""
    throwable: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: list[str] = []
    try:
        while throwable is not None and len(found) < 20:
            found.append(str(throwable.toString()))
            throwable = throwable.getCause()
    except Py4JError:
        pass
    return found or [f"{type(error).__name__}: {error}"]


def _root_message(error: BaseException) -> str:
    """What the innermost cause of a Java exception says; empty where it is Python's, whose trace is in the text."""
    throwable: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    message = ""
    try:
        for _ in range(20):
            if throwable is None:
                break
            kind = throwable.getClass().getSimpleName()
            message = f"{kind}: {throwable.getMessage()}" if throwable.getMessage() else kind
            throwable = throwable.getCause()
    except Py4JError:
        return ""
    return "" if "Traceback (most recent" in message else sentence(message)


def _reason(name: str, state: str) -> Reason:
    if "MALFORMED" in name:
        return BAD_RECORD
    if _CHECKPOINT.search(name):
        return CHECKPOINT_INVALID
    if name.startswith("KAFKA_DATA_LOSS"):
        return EDGE_DATA_LOST
    if state.startswith(_DATA) or name == _RAISED:
        return QUERY_FAILED
    if state.startswith(_SQL):
        return QUERY_INVALID
    return SPARK_FAILED


def sentence(text: str) -> str:
    """The first paragraph of a message, without Spark's class in front and its SQLSTATE and position behind."""
    text = _CLASS.sub("", text.strip(), count=1).strip() if text.strip().startswith("[") else text.strip()
    text = re.split(
        r"\n\s*\n|== SQL|\n\s*at |\nJVM stacktrace|\n==|;\s*line \d+ pos \d+;?\s*\n|;\s*\n'", text, maxsplit=1
    )[0]
    text = _SQLSTATE.sub("", text)
    text = " ".join(text.split()).strip(" ;:")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

"""Prometheus metrics, in a registry that is passed in: two servers in one process do not share one.

A service gives what it can count at any moment as a callback (`gauge`), which is asked when somebody looks; what
happens over time it counts with `prometheus_client` itself, on the same registry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

# One number, or one for each value of the labels (a tuple in the order of the labels).
Reading: TypeAlias = float | Mapping[tuple[str, ...], float]

OK = "OK"
# A method that the server does not have: its name is the caller's, and would make a label without bound.
UNKNOWN_METHOD = "unknown"
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def new_registry(service: str, version: str) -> CollectorRegistry:
    """A registry with what is known of the process: memory, descriptors, collector, version."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Info("headgate_build", "Which program this is.", registry=registry).info({"service": service, "version": version})
    return registry


def gauge(
    registry: CollectorRegistry, name: str, meaning: str, read: Callable[[], Reading], labels: tuple[str, ...] = ()
) -> None:
    """Publishes what `read` answers at the moment of looking. `read` must be quick and must not wait."""
    registry.register(_Callback(GaugeMetricFamily, name, meaning, read, labels))


def counter(
    registry: CollectorRegistry, name: str, meaning: str, read: Callable[[], Reading], labels: tuple[str, ...] = ()
) -> None:
    """The same for a number that only grows."""
    registry.register(_Callback(CounterMetricFamily, name, meaning, read, labels))


class _Callback(Collector):
    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        meaning: str,
        read: Callable[[], Reading],
        labels: tuple[str, ...],
    ) -> None:
        self._family = family
        self._name = name
        self._meaning = meaning
        self._read = read
        self._labels = labels

    def describe(self) -> Iterable[Metric]:
        # Without this the registry would call `read` to learn the name, before the service has begun.
        return [self._family(self._name, self._meaning, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        metric = self._family(self._name, self._meaning, labels=self._labels)
        reading = self._read()
        values = reading if isinstance(reading, Mapping) else {(): reading}
        for labels, value in values.items():
            metric.add_metric(labels, value)
        return [metric]


class MethodMetrics:
    """What is counted of one method. Plain numbers: all calls of a server are on one event loop, and so is the look."""

    __slots__ = ("buckets", "calls", "errors", "name", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.errors: dict[str, int] = {}
        self.seconds = 0.0
        self.buckets = [0] * (len(_BUCKETS) + 1)

    def ended(self, reason: str, seconds: float) -> None:
        """Counts a call that ended, with the name of its reason or OK."""
        self.calls += 1
        self.seconds += seconds
        self.buckets[bisect_left(_BUCKETS, seconds)] += 1
        if reason != OK:
            self.errors[reason] = self.errors.get(reason, 0) + 1

    def refused(self, reason: str) -> None:
        """Counts a call that was turned away unread; it says nothing about how long calls take."""
        self.calls += 1
        self.errors[reason] = self.errors.get(reason, 0) + 1


class RpcMetrics(Collector):
    """What a server counts of its calls. `method` is the full name without the leading slash."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.loop_lag = Gauge(
            "headgate_event_loop_lag_seconds", "How late the event loop last woke a sleeper.", registry=registry
        )
        self._methods: dict[str, MethodMetrics] = {}
        registry.register(self)

    def method(self, path: str) -> MethodMetrics:
        name = path.lstrip("/")
        return self._methods.setdefault(name, MethodMetrics(name))

    def describe(self) -> Iterable[Metric]:
        return self._families()

    def collect(self) -> Iterable[Metric]:
        calls, errors, seconds = families = self._families()
        for method in self._methods.values():
            calls.add_metric([method.name], method.calls)
            for reason, count in method.errors.items():
                errors.add_metric([method.name, reason], count)
            bounds = [*(f"{bound:g}" for bound in _BUCKETS), "+Inf"]
            seconds.add_metric(
                [method.name], list(zip(bounds, accumulate(method.buckets), strict=True)), method.seconds
            )
        return families

    @staticmethod
    def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, HistogramMetricFamily]:
        return (
            CounterMetricFamily("headgate_rpc", "Calls answered.", labels=["method"]),
            CounterMetricFamily("headgate_rpc_errors", "Calls answered with an error.", labels=["method", "reason"]),
            HistogramMetricFamily(
                "headgate_rpc_seconds",
                "Time from a call's arrival to its answer; for streams, to their end.",
                labels=["method"],
            ),
        )

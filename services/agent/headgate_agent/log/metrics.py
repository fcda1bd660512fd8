"""What the log counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class LogMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"headgate_log_{name}", meaning, labels, registry=registry)

        self.bytes_in = counter("bytes_in", "Bytes of record batches acknowledged.")
        self.bytes_out = counter("bytes_out", "Bytes of record batches given to readers.")
        self.produce_seconds = Histogram(
            "headgate_log_produce_seconds",
            "Time from a produce to its acknowledgement.",
            registry=registry,
            buckets=_BUCKETS,
        )
        self.refused = counter("produce_refused", "Produces that were not acknowledged.", "why")
        self.object_requests = counter("object_requests", "Requests to the object store.", "operation", "outcome")
        self.object_bytes = counter("object_bytes", "Bytes to and from the object store.", "operation")
        self.acquired = counter("partitions_acquired", "Leaderships taken.")
        self.lost = counter("partitions_lost", "Leaderships that ended, however they did.")
        self.transfers = counter("transfers", "Hand-overs of partitions to other agents.", "outcome")
        self.merged = counter("segments_merged", "Small segments that were merged into larger ones.")
        self.trimmed = counter("segments_expired", "Segments that went with the retention of their topic.")
        self.deleted = counter("objects_deleted", "Objects that were deleted.", "why")
        self.upkeep_failures = counter("upkeep_failures", "Background tasks that failed and are tried again.", "task")

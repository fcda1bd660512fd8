"""What can be counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from headgate_common.metrics import OK, RpcMetrics, counter, gauge, new_registry


def test_a_gauge_is_read_when_somebody_looks() -> None:
    registry = CollectorRegistry()
    agents: dict[tuple[str, ...], float] = {("active",): 2.0}
    looks = 0

    def read() -> dict[tuple[str, ...], float]:
        nonlocal looks
        looks += 1
        return agents

    gauge(registry, "headgate_agents", "Agents by state.", read, ("state",))
    assert looks == 0, "nothing to count before the service has begun"
    assert registry.get_sample_value("headgate_agents", {"state": "active"}) == 2
    agents["unreachable",] = 1.0
    assert registry.get_sample_value("headgate_agents", {"state": "unreachable"}) == 1


def test_a_plain_number_needs_no_labels() -> None:
    registry = CollectorRegistry()
    gauge(registry, "headgate_backlog", "Waiting.", lambda: 7)
    counter(registry, "headgate_transactions", "Committed.", lambda: 12)
    text = generate_latest(registry).decode()
    assert "headgate_backlog 7.0" in text
    assert "headgate_transactions_total 12.0" in text


def test_calls_are_counted_with_their_reason_and_time() -> None:
    registry = CollectorRegistry()
    method = RpcMetrics(registry).method("/a.B/C")
    method.ended(OK, 0.2)
    method.ended("REFUSED", 0.2)
    method.refused("OVERLOADED")
    label = {"method": "a.B/C"}
    assert registry.get_sample_value("headgate_rpc_total", label) == 3
    assert registry.get_sample_value("headgate_rpc_errors_total", {**label, "reason": "REFUSED"}) == 1
    assert registry.get_sample_value("headgate_rpc_errors_total", {**label, "reason": "OVERLOADED"}) == 1
    assert registry.get_sample_value("headgate_rpc_errors_total", {**label, "reason": OK}) is None
    assert registry.get_sample_value("headgate_rpc_seconds_count", label) == 2
    assert registry.get_sample_value("headgate_rpc_seconds_bucket", {**label, "le": "0.25"}) == 2
    assert registry.get_sample_value("headgate_rpc_seconds_bucket", {**label, "le": "0.1"}) == 0


def test_two_servers_in_one_process_do_not_share_their_numbers() -> None:
    one, other = new_registry("toy", "1"), new_registry("toy", "1")
    RpcMetrics(one).method("/a.B/C").ended(OK, 0.1)
    RpcMetrics(other)
    assert other.get_sample_value("headgate_rpc_total", {"method": "a.B/C"}) is None
    assert one.get_sample_value("headgate_build_info", {"service": "toy", "version": "1"}) == 1

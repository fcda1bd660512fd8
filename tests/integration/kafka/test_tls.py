"""Kafka clients over TLS, with and without certificates of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate_common.settings import TlsConfig
from tests.integration.kafka.test_confluent import PATIENCE
from tests.servers.certificates import authority, signed
from tests.unit.kafka.kit import CONFIG, running_cluster


def test_clients_must_use_tls_and_show_a_certificate_where_callers_must(tmp_path: Path) -> None:
    ca = authority(tmp_path, "ca")
    ours, theirs = signed(tmp_path, "agent", ca), signed(tmp_path, "client", ca)
    tls = TlsConfig(certificate=ours.certificate, key=ours.key, client_ca=ca.certificate)
    with running_cluster(tmp_path, agents=0) as cluster:
        agent = cluster.run(cluster.add("agent", replace(CONFIG, advertise="localhost:0"), tls))
        trusting = {
            "bootstrap.servers": agent.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(ca.certificate),
        }
        known = {
            **trusting,
            "ssl.certificate.location": str(theirs.certificate),
            "ssl.key.location": str(theirs.key),
        }
        admin = AdminClient(known)
        admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE)
        producer = Producer(known)
        for _ in range(2000):
            producer.produce("t", b"x" * 1000)
        assert producer.flush(PATIENCE) == 0
        for stranger in (trusting, {"bootstrap.servers": agent.address}):
            with pytest.raises(KafkaException):
                AdminClient(stranger).list_topics(timeout=2)

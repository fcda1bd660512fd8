"""What a client of an Apache Kafka cluster answers with: agents and engines are such clients, and whoever asks either
of them about the same topic is told the same."""

from __future__ import annotations

from grpc import StatusCode

from headgate_common.errors import ReasonTable

KAFKA = ReasonTable()
_r = KAFKA.declare

KAFKA_TOPIC_MISSING = _r(
    "KAFKA_TOPIC_MISSING",
    StatusCode.NOT_FOUND,
    "A Kafka topic that the query reads or writes is not there.",
    "Create the topic, or correct its name, and create the query again.",
)
KAFKA_UNREACHABLE = _r(
    "KAFKA_UNREACHABLE",
    StatusCode.UNAVAILABLE,
    "The brokers of a Kafka topic did not answer in time, or their name is not known.",
    "Look at bootstrap_servers and the brokers; the run is started again for as long as the query may take to start.",
)
KAFKA_REFUSED = _r(
    "KAFKA_REFUSED",
    StatusCode.PERMISSION_DENIED,
    "The brokers of a Kafka topic do not take this client, or its settings cannot be used: its user, its rights, its "
    "certificates.",
    "Correct the options of the source or sink, or give its user the rights, and create the query again.",
)

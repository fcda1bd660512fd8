"""The Kafka wire protocol, on a port of its own."""

"""The sidecar: Consul-leased Kafka consumers. Its server is not built yet; see docs/roadmap.md."""

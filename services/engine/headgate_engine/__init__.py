"""The engine: stateless, backed by Spark. Its server is not built yet; see docs/roadmap.md."""

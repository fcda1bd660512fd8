"""The log: topics on object storage. What is here is its pure core; its servers come with docs/roadmap.md."""

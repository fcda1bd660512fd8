"""Real servers for tests: PostgreSQL, Kafka, MinIO, and the grpcurl command.

A server is found through an environment variable or on PATH, then in the cache folder, and is otherwise built there
once. It runs on a free port in a folder of its own, and ends with the process that started it, however that ends.
`python -m tests.servers prepare` builds everything that is missing beforehand.
"""

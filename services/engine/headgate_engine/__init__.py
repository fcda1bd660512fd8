"""The Headgate engine: gRPC over Spark."""

import os

# Spark's JVM is started by a fork. gRPC reads this when it is first imported: its handlers for forks would break the
# polling of the server that is listening already.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

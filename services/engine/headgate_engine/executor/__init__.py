"""What runs in Spark's Python workers, shipped to executors by itself (`headgate_engine.spark`).

Executors need grpcio and pyarrow beside Spark and nothing of ours: the modules of this folder import only each other,
no protobuf and no other part of the engine. A unit test keeps it so.
"""

from headgate.engine.v1.engine_service_pb2 import *
from headgate.engine.v1.engine_service_pb2_grpc import *

from headgate.cluster.v1.fragment_service_pb2 import *
from headgate.cluster.v1.membership_service_pb2 import *
from headgate.cluster.v1.result_service_pb2 import *
from headgate.cluster.v1.fragment_service_pb2_grpc import *
from headgate.cluster.v1.membership_service_pb2_grpc import *
from headgate.cluster.v1.result_service_pb2_grpc import *

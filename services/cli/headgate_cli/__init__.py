"""`headgate`: the command line of the Headgate suite. It talks to a coordinator through gRPC and to nothing else."""

__version__ = "0.1.0"

"""An engine as a real process, and what tests ask of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf.message import Message
from grpc_status import rpc_status

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate.engine.v1 import engine_service_pb2
from headgate_common.dispatch import methods
from headgate_common.errors import from_code, from_status
from headgate_engine.errors import REASONS
from tests.e2e.api.kit import Server
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess

# Far more than anything here takes; it only bounds a test that fails.
PATIENCE_SECONDS = 90.0
START_SECONDS = 180.0
_METHODS = {
    method.request.DESCRIPTOR.full_name: method
    for method in methods(engine_service_pb2.DESCRIPTOR.services_by_name["EngineService"]).values()
}
# A small JVM: the tests have few rows.
SMALL = ("--master=local[2]", "--set=spark.driver_memory=700m")
ENDED = (engine.RUN_STATE_STOPPED, engine.RUN_STATE_FINISHED, engine.RUN_STATE_FAILED)


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true answer of the condition."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Client:
    """Calls one engine; errors come back as `HeadgateError`."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def __call__(self, request: Message, timeout: float = 30.0) -> Any:
        method = _METHODS[request.DESCRIPTOR.full_name]
        call = self.channel.unary_unary(method.path, type(request).SerializeToString, method.response.FromString)
        try:
            return call(request, timeout=timeout)
        except grpc.RpcError as error:
            raise _typed(error) from error

    def stream(self, request: Message, timeout: float = PATIENCE_SECONDS) -> Generator[Any, None, None]:
        method = _METHODS[request.DESCRIPTOR.full_name]
        call = self.channel.unary_stream(method.path, type(request).SerializeToString, method.response.FromString)
        answers = call(request, timeout=timeout)
        try:
            yield from answers
        except grpc.RpcError as error:
            raise _typed(error) from error
        finally:
            answers.cancel()

    def run(self, ref: engine.RunRef) -> engine.Run:
        return self(engine.GetFragmentRequest(run=ref)).run

    def wait(self, ref: engine.RunRef, *states: int, seconds: float = PATIENCE_SECONDS) -> engine.Run:
        """The run, once it is in one of the states; fails at once where it ends in another."""

        def look() -> engine.Run | None:
            self(engine.KeepAliveRequest(runs=[ref]))
            run = self.run(ref)
            if run.state in states:
                return run
            assert run.state not in ENDED, f"the run ended: {run}"
            return None

        found = until(look, f"run {ref} to be {[engine.RunState.Name(one) for one in states]}", seconds)
        assert isinstance(found, engine.Run)
        return found

    def batch(self, request: engine.ExecuteBatchRequest) -> tuple[pa.Table, list[engine.ExecuteBatchResponse]]:
        answers = list(self.stream(request))
        parts = [pa.ipc.open_stream(one.arrow).read_all() for one in answers if one.WhichOneof("message") == "arrow"]
        return pa.concat_tables(parts), answers


def _typed(error: Any) -> Exception:
    status = rpc_status.from_call(error)
    return from_status(status, REASONS) if status is not None else from_code(error.code(), error.details() or "")


@dataclass
class Engine:
    """One engine process that can be killed and started again."""

    folder: Path
    options: tuple[str, ...] = ()
    starts: int = 0
    server: Server | None = None
    client: Client = field(init=False)

    def launch(self) -> Server:
        """Starts the process and does not wait for Spark."""
        self.starts += 1
        address, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "headgate_engine.server", "--listen", address, "--http-listen", http]
        log = self.folder / f"engine-{self.starts}.log"
        process = ServerProcess(Command("engine", [*command, *SMALL, *self.options], log, grace_seconds=30.0))
        self.server = Server(process, address, http)
        self.client = Client(address)
        return self.server

    def start(self) -> Client:
        server = self.launch()
        server.process.wait_until_ready(server.ready, START_SECONDS)
        return self.client

    @property
    def log(self) -> str:
        return (self.folder / f"engine-{self.starts}.log").read_text(errors="replace")

    def kill(self) -> None:
        assert self.server is not None
        self.server.process.kill()

    def stop(self) -> None:
        if self.server is not None:
            self.client.channel.close()
            if self.server.process.alive:
                self.server.process.stop()


@contextmanager
def running_engine(folder: Path, *options: str) -> Iterator[Engine]:
    made = Engine(folder, options)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def schema(**columns: str) -> catalog.Schema:
    return catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in columns.items()])


def compute(
    sql: str, inputs: list[catalog.ComputeInput], output: catalog.Schema, **more: Any
) -> catalog.ComputeFragment:
    """A plan as the coordinator's planner makes it, with the settings that it gives every plan."""
    conf = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
    }
    return catalog.ComputeFragment(
        inputs=inputs, spark_sql=sql, output=output, output_mode="append", spark_conf=conf, **more
    )

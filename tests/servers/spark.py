"""A Spark standalone cluster: a master and workers as real processes, started from pyspark's wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.servers.ports import free_port
from tests.servers.process import Command, ServerDied, ServerProcess, start_with_retry

SPARK_HOME = Path(pyspark.__file__).parent


class SparkCluster:
    """Owns its processes; each goes on until the cluster is left or it is killed. Workers have one core each."""

    def __init__(self, folder: Path, stack: ExitStack, *, workers: int = 2, memory: str = "900m") -> None:
        self._folder = folder
        self._stack = stack
        self.url = ""
        self.master = start_with_retry(self._start_master)
        self.workers = [
            self._start(f"worker{number}", "Worker", "-c", "1", "-m", memory, self.url)
            for number in range(1, workers + 1)
        ]
        for worker in self.workers:
            worker.wait_until_ready(lambda: self.registered() == workers, 90)

    def _start_master(self) -> ServerProcess:
        self.url = f"spark://127.0.0.1:{free_port()}"
        master = self._start("master", "Master", "--port", self.url.rpartition(":")[2], "--webui-port", "0")
        master.wait_until_ready(lambda: "I have been elected leader" in self._log(), 60)
        # It takes the next port where this one is taken, without a word.
        if f"Starting Spark master at {self.url}" not in self._log():
            raise ServerDied(f"the port of {self.url} is in use")
        return master

    def _start(self, name: str, kind: str, *arguments: str) -> ServerProcess:
        environment = [f"SPARK_HOME={SPARK_HOME}", "SPARK_DAEMON_MEMORY=256m", "SPARK_LOCAL_IP=127.0.0.1"]
        work = ["--work-dir", str(self._folder / name), "--webui-port", "0"] if kind == "Worker" else []
        command = [
            "env",
            *environment,
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
        ]
        log = self._folder / f"{name}.log"
        process = ServerProcess(Command(name, [*command, "--host", "127.0.0.1", *work, *arguments], log))
        self._stack.callback(process.stop)
        return process

    def _log(self) -> str:
        log = self._folder / "master.log"
        return log.read_text() if log.exists() else ""

    def registered(self) -> int:
        return len(re.findall(r"Registering worker", self._log()))


@contextmanager
def running_spark_cluster(folder: Path, *, workers: int = 2, memory: str = "900m") -> Iterator[SparkCluster]:
    with ExitStack() as stack:
        yield SparkCluster(folder, stack, workers=workers, memory=memory)

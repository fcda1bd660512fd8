"""A Kafka broker: one node, KRaft."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.servers.cache import ServerMissing
from tests.servers.maven import fetched
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess, start_with_retry

VERSION = "4.1.0"
CLUSTER_ID = "aGVhZGdhdGUtdGVzdC1rYQ"
POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>headgate.test</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
LOGGING = """appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss,SSS} %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = org.apache.kafka.common.utils.AppInfoParser
logger.server.level = info
"""


def find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        return Path(found)
    raise ServerMissing("Kafka needs a JDK, 17 or newer: java is not on PATH and JAVA_HOME is not set")


def find_libs() -> Path:
    """The folder with the broker's jars: of KAFKA_HOME, of PATH, of the cache, or fetched into it with Maven."""
    if home := os.environ.get("KAFKA_HOME"):
        return Path(home) / "libs"
    if script := shutil.which("kafka-server-start.sh"):
        return Path(script).resolve().parent.parent / "libs"
    return fetched("Kafka", VERSION, POM, takes="half a minute", missing="Kafka is neither on PATH nor in the cache")


class Kafka:
    """One broker."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._java = find_java()
        self._libs = find_libs()
        self._folder = folder
        self._log = log
        self.port = 0
        (folder / "log4j2.properties").write_text(LOGGING)
        self.process = start_with_retry(self._start)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self, data: Path, controller: int) -> dict[str, str]:
        """What the broker is started with."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def users(self) -> list[str]:
        """Arguments with which its storage is formatted, so that it knows its users from the start."""
        return []

    def _start(self) -> ServerProcess:
        self.port, controller = free_port(), free_port()
        data = self._folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        properties = self._folder / "server.properties"
        # A backslash begins an escape in such a file.
        lines = [f"{name}={value}\n" for name, value in self.settings(data, controller).items()]
        properties.write_text("".join(lines).replace("\\", "\\\\"))
        self._format(properties)
        process = ServerProcess(
            Command(
                "Kafka",
                [*self._jvm("-Xmx512m"), "kafka.Kafka", properties],
                self._log,
                grace_seconds=5.0,
                folder=self._folder,
            )
        )
        process.wait_until_ready(self._answers, 90)
        return process

    def _jvm(self, *options: str) -> list[str | Path]:
        quick = [
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
        ]
        return [self._java, *options, *quick, "-cp", f"{self._libs}/*"]

    def _format(self, properties: Path) -> None:
        formatted = subprocess.run(
            [
                *(*self._jvm("-Xmx128m"), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties),
                *self.users(),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )
        if formatted.returncode != 0:
            raise ServerMissing(f"Kafka could not format its storage:\n{formatted.stdout}")

    def _answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


K = TypeVar("K", bound=Kafka)


def running_kafka(log: Path) -> AbstractContextManager[Kafka]:
    return running(Kafka, log)


@contextmanager
def running(kind: Callable[[Path, Path], K], log: Path) -> Iterator[K]:
    with tempfile.TemporaryDirectory(prefix="headgate-kafka-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder), log)
        try:
            yield server
        finally:
            server.process.stop()

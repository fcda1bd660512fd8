"""Hadoop YARN, in the version whose client Spark's wheel has: a resource manager and a node manager."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.kafka import find_java
from tests.servers.maven import fetched
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess

VERSION = "3.5.0"
# The resource manager needs the last one and does not say so.
_PARTS = ("resourcemanager", "nodemanager", "timelineservice")
_DEPENDENCY = (
    "<dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-yarn-server-{part}</artifactId>"
    f"<version>{VERSION}</version>{{alone}}</dependency>"
)
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>headgate.test</groupId><artifactId>yarn</artifactId>"
    "<version>1</version><dependencies>"
    + "".join(_DEPENDENCY.format(part=part, alone=_ALONE if part == "timelineservice" else "") for part in _PARTS)
    + "</dependencies></project>"
)
LOGGING = """log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_SERVER = "org.apache.hadoop.yarn.server"
_MEMORY_MB = 3_000


def find_yarn() -> Path:
    """The folder with its jars: in the cache, or fetched into it with Maven."""
    return fetched("YARN", VERSION, POM, takes="a minute", missing="YARN is not in the cache")


class Yarn:
    """One resource manager and one node. `conf` is what HADOOP_CONF_DIR names for who submits to it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._java = find_java()
        self._libs = find_yarn()
        self.conf = folder / "hadoop"
        self.conf.mkdir()
        self._web = f"127.0.0.1:{free_port()}"
        self._write()
        self.manager = self._start("resourcemanager", "ResourceManager")
        self.manager.wait_until_ready(lambda: self._nodes() is not None, 90)
        self.node = self._start("nodemanager", "NodeManager")
        self.node.wait_until_ready(lambda: self._nodes() == 1, 90)

    def _start(self, package: str, name: str) -> ServerProcess:
        # What Hadoop's own scripts give it on Java 17.
        opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"
        quick = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        path = os.pathsep.join((str(self.conf), f"{self._libs}/*"))
        command: list[str | Path] = [self._java, *quick, opened, "-cp", path, f"{_SERVER}.{package}.{name}"]
        process = ServerProcess(Command(name, command, self._folder / f"{package}.log"))
        self._stack.callback(process.stop)
        return process

    def _nodes(self) -> int | None:
        """How many nodes it has; None before it answers."""
        try:
            with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/metrics", timeout=5) as answer:
                return int(json.load(answer)["clusterMetrics"]["activeNodes"])
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def _write(self) -> None:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        ports = {
            f"{manager}.{name}": f"127.0.0.1:{free_port()}"
            for name in ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        }
        ports |= {f"{node}.{name}": f"127.0.0.1:{free_port()}" for name in ("address", "localizer.address")}
        settings = {
            **ports,
            f"{manager}.hostname": "127.0.0.1",
            f"{manager}.webapp.address": self._web,
            f"{manager}.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            f"{node}.webapp.address": f"127.0.0.1:{free_port()}",
            f"{node}.local-dirs": str(self._folder / "local"),
            f"{node}.log-dirs": str(self._folder / "logs"),
            f"{node}.resource.memory-mb": str(_MEMORY_MB),
            f"{node}.resource.cpu-vcores": "4",
            f"{node}.pmem-check-enabled": "false",
            f"{node}.vmem-check-enabled": "false",
            # A disk that is nearly full makes a node unhealthy, and the disk is the machine's.
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self._folder / "tmp")}
        for name, values in (("yarn-site", settings), ("core-site", core)):
            properties = "".join(
                f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items()
            )
            (self.conf / f"{name}.xml").write_text(f"<configuration>{properties}</configuration>")
        (self.conf / "log4j.properties").write_text(LOGGING)


@contextmanager
def running_yarn(folder: Path) -> Iterator[Yarn]:
    with ExitStack() as stack:
        yield Yarn(folder, stack)

"""What every test may use: real servers, started once in each test process, with their logs kept when a test fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

from tests.examples import examples
from tests.servers.cache import ServerMissing, servers_required
from tests.servers.grpcurl import Grpcurl, find_grpcurl
from tests.servers.kafka import Kafka, running_kafka
from tests.servers.minio import Bucket, Minio, running_minio
from tests.servers.postgres import Postgres, running_postgres
from tests.servers.process import tail
from tests.servers.secure_kafka import SecureKafka, running_secure_kafka
from tests.servers.yarn import Yarn, running_yarn

S = TypeVar("S")

# A fixture brings its marker along, so that `-m "not kafka"` leaves out all that would start a broker.
_MARKER_OF_FIXTURE = {
    "postgres_url": "postgres",
    "postgres_server": "postgres",
    "kafka_bootstrap": "kafka",
    "kafka_server": "kafka",
    "secure_kafka": "kafka",
    "minio": "minio",
    "minio_server": "minio",
    "yarn": "yarn",
    "grpcurl": "grpcurl",
}
# What their tests share takes minutes to make, so only one test process makes it. (Groups by marker need a pytest whose
# node ids a plugin may change.)
_TOGETHER = frozenset(
    {
        "tests/e2e/engine/test_crashes.py",
        "tests/e2e/engine/test_s3.py",
        "tests/e2e/queries/test_cannot_start.py",
        "tests/e2e/queries/test_kafka_security.py",
        "tests/e2e/queries/test_kills.py",
        "tests/e2e/queries/test_latest.py",
        "tests/e2e/queries/test_lost_agents.py",
        "tests/e2e/queries/test_oracle.py",
        "tests/e2e/queries/test_select.py",
        "tests/e2e/queries/test_two_engines.py",
        "tests/e2e/sdk/test_docs.py",
        "tests/e2e/sdk/test_examples.py",
        "tests/integration/planner_spark/test_corpus_in_spark.py",
        "tests/integration/planner_spark/test_oracle.py",
        "tests/simulation/test_planted.py",
    }
)
# Every Java that a test starts: it lives for a minute, in which compiling well costs more than it gains.
_SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_LOGGED = ("postgres", "kafka", "minio")


def pytest_configure() -> None:
    # For property tests that name no number of their own.
    # (no deadline: the machine is shared, and how long a case takes says nothing)
    settings.register_profile("headgate", max_examples=examples(100), deadline=None)
    settings.load_profile("headgate")
    os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED_JAVA)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in _MARKER_OF_FIXTURE:
                item.add_marker(_MARKER_OF_FIXTURE[fixture])


class _TogetherScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """Tests of the files in `_TOGETHER` go to one process each; all others go wherever there is time."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path in _TOGETHER else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _TogetherScheduling:
    return _TogetherScheduling(config, log)


def _log_folder(config: pytest.Config) -> Path:
    """A folder of this process alone: another run may be going on in the same tree."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return config.rootpath / "build" / "server-logs" / f"{worker}-{os.getpid()}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Removes what runs that are over have left behind."""
    for folder in _log_folder(session.config).parent.glob("*-*"):
        if not _is_alive(int(folder.name.rpartition("-")[2])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.testsfailed == 0:
        shutil.rmtree(_log_folder(session.config), ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the logs of the servers that a failed test used."""
    report = yield
    if report.failed:
        for name in _LOGGED:
            log = _log_folder(item.config) / f"{name}.log"
            if item.get_closest_marker(name) is not None and log.exists():
                report.sections.append((f"end of {log.relative_to(item.config.rootpath)}", tail(log)))
    return report


@pytest.fixture(scope="session")
def server_logs(pytestconfig: pytest.Config) -> Path:
    """Where servers of this test process write their logs; kept when a test fails."""
    folder = _log_folder(pytestconfig)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _skip(missing: ServerMissing) -> NoReturn:
    if servers_required():
        pytest.fail(f"HEADGATE_REQUIRE_SERVERS is set: {missing}", pytrace=False)
    pytest.skip(str(missing))


def _running(server: AbstractContextManager[S]) -> Iterator[S]:
    with ExitStack() as stack:
        try:
            started = stack.enter_context(server)
        except ServerMissing as missing:
            _skip(missing)
        yield started


@pytest.fixture(scope="session")
def postgres_server(server_logs: Path) -> Iterator[Postgres]:
    yield from _running(running_postgres(server_logs / "postgres.log"))


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of an empty database of a real PostgreSQL server, dropped after the test."""
    with postgres_server.fresh_database() as url:
        yield url


@pytest.fixture(scope="session")
def kafka_server(server_logs: Path) -> Iterator[Kafka]:
    yield from _running(running_kafka(server_logs / "kafka.log"))


@pytest.fixture
def kafka_bootstrap(kafka_server: Kafka) -> str:
    """`bootstrap.servers` of a real Kafka broker. Topics of all tests live on it: give yours a name of its own."""
    return kafka_server.bootstrap


@pytest.fixture(scope="session")
def secure_kafka(server_logs: Path) -> Iterator[SecureKafka]:
    """A real Kafka broker with users, certificates and rights."""
    yield from _running(running_secure_kafka(server_logs / "secure-kafka.log"))


@pytest.fixture(scope="session")
def minio_server(server_logs: Path) -> Iterator[Minio]:
    yield from _running(running_minio(server_logs / "minio.log"))


@pytest.fixture
def minio(minio_server: Minio) -> Bucket:
    """An empty bucket of a real MinIO server."""
    return minio_server.fresh_bucket()


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    """A real YARN of one node."""
    yield from _running(running_yarn(tmp_path))


@pytest.fixture(scope="session")
def grpcurl() -> Grpcurl:
    """The grpcurl command."""
    try:
        return Grpcurl(find_grpcurl())
    except ServerMissing as missing:
        _skip(missing)


@pytest.fixture(scope="session")
def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's Kafka connector."""
    return _jars("kafka")


@pytest.fixture(scope="session")
def spark_s3_jars() -> list[Path]:
    """The jars with which Spark writes checkpoints to S3."""
    return _jars("s3")


def _jars(kind: str) -> list[Path]:
    # Not at the top: it brings pyspark along, and few tests need that.
    import spark_jars

    try:
        return spark_jars.fetch() if kind == "kafka" else spark_jars.fetch_s3()
    except spark_jars.Unavailable as error:
        _skip(ServerMissing(str(error)))

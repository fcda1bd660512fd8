"""What a run needs to know beside its request: settings of the engine, and how agents are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.config import ConfigError
from headgate_common.settings import TlsConfig
from headgate_engine.executor.calls import Access


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """From the engine's configuration."""

    batch_bytes: int
    batch_records: int
    keep_alive: float
    look: float
    idle_nap: float
    stop: float
    reserved_slots: int
    traces: bool


@dataclass(frozen=True, slots=True)
class Pems:
    """How agents are called: PEM texts, all empty without TLS."""

    ca: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def of(cls, tls: TlsConfig) -> Pems:
        if tls.ca is None:
            return cls()
        return cls(*(_text(path) if path else "" for path in (tls.ca, tls.certificate, tls.key)))

    def access(self, edge: engine.EdgeAccess, fragment_uid: str, epoch: int) -> Access:
        return Access(
            edge.address, edge.topic_uid, edge.partitions, fragment_uid, epoch, self.ca, self.certificate, self.key
        )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def is_realtime(request: engine.StartFragmentRequest) -> bool:
    return request.settings.mode == catalog.QUERY_MODE_REALTIME


def checkpoint_of(request: engine.StartFragmentRequest) -> str:
    """A folder under the fragment's identity, so that the next epoch finds it."""
    return checkpoint_folder(request.checkpoint, request.run.fragment_uid)


def checkpoint_folder(checkpoint: str, fragment_uid: str) -> str:
    return f"{checkpoint.rstrip('/')}/{fragment_uid}"


def control_folder(checkpoint: str, fragment_uid: str) -> str:
    """Beside the checkpoint, because Spark expects only its own in there."""
    return f"{checkpoint_folder(checkpoint, fragment_uid)}.control"

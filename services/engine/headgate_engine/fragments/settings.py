"""What a run needs to know beside its request: settings of the engine, and how agents are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.config import ConfigError
from headgate_common.settings import TlsConfig
from headgate_engine.executor.calls import Access
from headgate_engine.executor.channels import PATIENCE_SECONDS
from headgate_engine.executor.log_calls import TopicAccess


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """From the engine's configuration."""

    batch_bytes: int
    batch_records: int
    edge_max_lag: int
    keep_alive: float
    look: float
    idle_nap: float
    poll: float
    mark_interval: float
    quiet: float
    losses: float
    brokers: float
    realtime_checkpoint: float
    stop: float
    reserved_slots: int
    traces: bool


@dataclass(frozen=True, slots=True)
class Pems:
    """How agents are called: PEM texts, all empty without TLS, and how long a call is repeated."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    patience: float = PATIENCE_SECONDS

    @classmethod
    def of(cls, tls: TlsConfig, patience: float) -> Pems:
        if tls.ca is None:
            return cls(patience=patience)
        ca, certificate, key = (_text(path) if path else "" for path in (tls.ca, tls.certificate, tls.key))
        return cls(ca, certificate, key, patience)

    def access(self, edge: engine.EdgeAccess, fragment_uid: str, epoch: int) -> Access:
        return Access(
            edge.address,
            edge.topic_uid,
            edge.partitions,
            fragment_uid,
            epoch,
            self.ca,
            self.certificate,
            self.key,
            self.patience,
        )

    def topic(self, access: engine.TopicAccess) -> TopicAccess:
        addresses = tuple(access.addresses)
        return TopicAccess(
            access.topic, access.topic_uid, addresses, self.ca, self.certificate, self.key, self.patience
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

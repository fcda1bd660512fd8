"""Topics as Kafka clients name them: by name, or by an id that is made from the uid, so that a re-created topic has
another one."""

from __future__ import annotations

import hashlib
import re
import uuid

from headgate.log import v1 as log
from headgate_agent.log.access import ClusterView
from headgate_agent.log.contract import PartitionKey

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ID_BYTES = 16


def topic_id(uid: str) -> uuid.UUID:
    """The same on every agent, for good."""
    return uuid.UUID(bytes=hashlib.blake2b(uid.encode(), digest_size=_ID_BYTES).digest())


def valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class TopicNames:
    """Looks topics up; remembers which uid an id was made from."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # By their ids, those that there were at a revision of the view.
        self._uids: dict[uuid.UUID, str] = {}
        self._revision = -1

    def find(self, name: str | uuid.UUID) -> log.Topic | None:
        if isinstance(name, str):
            return self._view.topic(name)
        found = self._view.topic_by_uid(self._uids.get(name, ""))
        if found is None and self._revision != self._view.revision:
            self._revision = self._view.revision
            self._uids = {topic_id(topic.uid): topic.uid for topic in self._view.topics()}
            found = self._view.topic_by_uid(self._uids.get(name, ""))
        return found

    def partition(self, name: str | uuid.UUID, index: int) -> tuple[log.Topic, PartitionKey] | None:
        """None where there is no such topic or partition."""
        topic = self.find(name)
        if topic is None or not 0 <= index < topic.partitions:
            return None
        return topic, PartitionKey(topic.uid, index)

    def find_uid(self, uid: str) -> log.Topic | None:
        return self._view.topic_by_uid(uid)

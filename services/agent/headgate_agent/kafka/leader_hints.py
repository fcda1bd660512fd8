"""Where a partition's leader is, told with NOT_LEADER_OR_FOLLOWER: a client that understands it (KIP-951) goes there
without asking for metadata first."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from headgate_agent.kafka.walk import uvarint
from headgate_agent.log.access import ClusterView
from headgate_agent.log.contract import PartitionKey
from headgate_common.tls import split_address

_LEADER = struct.Struct(">iib")
_INT = struct.Struct(">i")
_ENDPOINTS_TAG = 0


@dataclass(frozen=True, slots=True)
class LeaderHint:
    node_id: int
    epoch: int
    host: str
    port: int
    rack: str | None = None


class LeaderHints:
    def __init__(self, agent: str, view: ClusterView) -> None:
        self._agent, self._view = agent, view

    def find(self, topic_uid: str, index: int) -> LeaderHint | None:
        """None where no other agent is known to lead it."""
        leadership = self._view.leadership(PartitionKey(topic_uid, index))
        leader = self._view.peer(leadership.leader)
        if leader is None or leader.name == self._agent or not leader.present or not leader.kafka_address:
            return None
        host, port = split_address(leader.kafka_address)
        return LeaderHint(leader.node_id, leadership.epoch, host, port, leader.zone or None)


def leader_tags(tag: int, hint: LeaderHint | None) -> bytes:
    """The tagged fields of a partition: its leader, if there is a hint."""
    if hint is None:
        return b"\0"
    return bytes((1, tag, _LEADER.size)) + _LEADER.pack(hint.node_id, hint.epoch, 0)


def endpoint_tags(hints: Iterable[LeaderHint | None]) -> bytes:
    """The tagged fields of a response: the addresses of the leaders that its partitions name."""
    nodes = {hint.node_id: hint for hint in hints if hint is not None}
    if not nodes:
        return b"\0"
    body = bytearray(uvarint(len(nodes) + 1))
    for hint in nodes.values():
        body += _INT.pack(hint.node_id)
        body += _text(hint.host)
        body += _INT.pack(hint.port)
        body += b"\0" if hint.rack is None else _text(hint.rack)
        body.append(0)
    return bytes((1, _ENDPOINTS_TAG)) + uvarint(len(body)) + bytes(body)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded

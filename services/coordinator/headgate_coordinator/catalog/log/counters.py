"""Numbers that only grow: node ids of agents and ids of producers, each given out once, and the highest epoch of a
consumer group that was forgotten."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from headgate_coordinator.catalog.log.schema import counters
from headgate_coordinator.catalog.tx import Tx

NODE_ID = "node_id"
PRODUCER_ID = "producer_id"
GROUP_EPOCH = "group_epoch"

_VALUE = select(counters.c.value).where(counters.c.name == bindparam("name_"))
_SET = update(counters).where(counters.c.name == bindparam("name_")).values(value=bindparam("value_"))
_RAISE = _SET.where(counters.c.value < bindparam("value_"))


def last(tx: Tx, name: str) -> int:
    """The last number that was given out; 0 before the first."""
    value: int = tx.connection.execute(_VALUE, {"name_": name}).scalar_one()
    return value


def take(tx: Tx, name: str, count: int = 1) -> int:
    """The first of `count` numbers that follow each other, from 1 on."""
    before = last(tx, name)
    tx.connection.execute(_SET, {"name_": name, "value_": before + count})
    return before + 1


def raise_to(tx: Tx, name: str, value: int) -> None:
    """The number is at least `value` from now on."""
    tx.connection.execute(_RAISE, {"name_": name, "value_": value})

"""The quick way to SQLite must give what SQLAlchemy's own way gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, delete, exists, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound

from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_simulation.database import FastDatabase

agents = schema.agents
# Every column that needs a value gets one; these matter here.
AGENT = {
    **{column.name: "" if column.type.python_type is str else 1 for column in agents.c if not column.nullable},
    "slots": 3,
    "labels": "{}",
    "roles": "[]",
    "has_engine": True,
    "state": "ACTIVE",
    "session_uid": None,
    "time": 5,
}


def plain(rows: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def work(connection: Any) -> list[Any]:
    """Statements of every form that the catalog uses; what they answered."""
    out: list[Any] = []
    for number in range(6):
        values = {**AGENT, "uid": f"u{number}", "name": f"n{number}", "address": f"h:{number}", "node_id": number + 1}
        if number % 2:
            connection.execute(insert(agents).values(**{**values, "slots_used": 0}))
        else:
            connection.execute(agents.insert(), {**values, "slots_used": number % 3})
    connection.execute(
        schema.network_links.insert(),
        [{"uid": f"l{n}", "from_uid": "u0", "to_uid": f"u{n}", "time": 1, "revision": 1} for n in (1, 2, 3)],
    )
    out.append(plain(connection.execute(select(agents).order_by(agents.c.name))))
    out.append(connection.execute(select(agents).where(agents.c.uid == "u1")).one().has_engine)
    prebuilt = select(agents.c.name, agents.c.slots).where(agents.c.uid == bindparam("uid_"))
    out.extend(tuple(connection.execute(prebuilt, {"uid_": uid}).one()) for uid in ("u1", "u2"))
    named = select(agents.c.name).order_by(agents.c.name)
    out.extend(plain(connection.execute(named.where(agents.c.uid.in_(some)))) for some in (["u1"], ["u2", "u3"], []))
    counts = select(agents.c.state, func.count().label("count")).group_by(agents.c.state)
    out.extend(dict(row._mapping) for row in connection.execute(counts))
    joined = (
        select(schema.network_links.c.uid, agents.c.name)
        .join(agents, agents.c.uid == schema.network_links.c.to_uid)
        .where(schema.network_links.c.from_uid == "u0", agents.c.slots - agents.c.slots_used >= 1)
        .order_by(agents.c.name)
        .limit(2)
    )
    out.append(plain(connection.execute(joined)))
    out.append(connection.execute(select(exists(select(agents.c.uid).where(agents.c.slots > 100)))).scalar())
    out.append(plain(connection.execute(select(agents.c.name).add_columns(literal("x")).limit(1))))
    changed = connection.execute(
        update(agents).where(agents.c.uid == "u1").values(slots_used=agents.c.slots_used + 2, has_engine=False)
    )
    out.append(changed.rowcount)
    out.append(
        tuple(connection.execute(select(agents.c.slots_used, agents.c.has_engine).where(agents.c.uid == "u1")).one())
    )
    out.append(connection.execute(select(agents.c.uid).where(agents.c.uid == "nobody")).scalar_one_or_none())
    out.append(list(connection.execute(select(agents.c.uid).order_by(agents.c.uid)).scalars()))
    out.append(connection.execute(delete(schema.network_links).where(schema.network_links.c.uid == "l1")).rowcount)
    return out


def breaking(connection: Any) -> list[type[Exception]]:
    found: list[type[Exception]] = []
    duplicate = {**AGENT, "uid": "u0", "name": "n0", "slots_used": 0}
    cases: list[Callable[[], Any]] = [
        lambda: connection.execute(agents.insert(), duplicate),
        lambda: connection.execute(update(agents).where(agents.c.uid == "u0").values(slots_used=99)),
        lambda: connection.execute(delete(agents).where(agents.c.uid == "u0")),
        lambda: connection.execute(update(schema.revision).values(value=-1)),
        lambda: connection.execute(select(agents)).one(),
        lambda: connection.execute(select(agents).where(agents.c.uid == "x")).one(),
    ]
    for case in cases:
        with pytest.raises(Exception) as caught:
            case()
        found.append(caught.type)
    return found


def test_both_ways_answer_the_same() -> None:
    slow, fast = InlineDatabase(), FastDatabase()
    assert work(fast.connection) == work(slow.connection)
    assert plain(fast.raw.execute("SELECT * FROM agents")) == plain(slow.raw.execute("SELECT * FROM agents"))


def test_both_ways_break_the_same() -> None:
    slow, fast = InlineDatabase(), FastDatabase()
    for database in (slow, fast):
        work(database.connection)
    broken = breaking(fast.connection)
    assert broken == breaking(slow.connection)
    assert broken == [IntegrityError] * 4 + [MultipleResultsFound, NoResultFound]

"""Bringing a database up to date at start."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, MetaData, Text, create_engine, text

from headgate_common.clock import SystemClock
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import schema, triggers
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.migrations import FOLDER, configuration, migrate
from headgate_coordinator.catalog.migrations.__main__ import write
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_TOO_NEW, CATALOG_UNAVAILABLE
from tests.integration.catalog.kit import Databases, create, names


async def opened(url: str) -> Store:
    return await connect(url, clock=SystemClock(), ids=RandomIds())


WRITE_ONE = 'the code has changed: run python -m headgate_coordinator.catalog.migrations "what changes"'


async def test_an_empty_database_is_brought_to_the_schema_of_the_code(store: Store) -> None:
    def differences(tx: Tx) -> list[object]:
        context = MigrationContext.configure(tx.connection, opts={"compare_type": True})
        return list(compare_metadata(context, schema.metadata))

    assert await store.read(differences) == [], WRITE_ONE


async def test_migrated_tables_hold_what_tables_made_from_the_code_hold(store: Store) -> None:
    """To the letter of every check and key, which the comparison above does not see."""

    class RollBack(Exception):
        pass

    found: list[set[str]] = []

    def compare(tx: Tx) -> None:
        if tx.connection.dialect.name == "sqlite":
            with create_engine("sqlite://").connect() as reference:
                schema.metadata.create_all(reference)
                found.extend(_sqlite_definitions(connection) for connection in (tx.connection, reference))
        else:
            tx.connection.execute(text("CREATE SCHEMA reference"))
            mapped = tx.connection.execution_options(schema_translate_map={None: "reference"})
            schema.metadata.create_all(mapped)
            found.extend(_postgres_definitions(tx.connection, name) for name in ("public", "reference"))
        raise RollBack

    with pytest.raises(RollBack):
        await store.write(compare)
    migrated, from_code = found
    assert len(from_code) > 60
    assert migrated == from_code, WRITE_ONE


def _sqlite_definitions(connection: Connection) -> set[str]:
    """Each column, constraint and index by its text; their order in a table is nobody's concern."""
    rows = connection.execute(
        text("SELECT tbl_name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL")
    )
    return {
        # A table that was made anew and renamed has its name in quotes.
        f"{table}: {line.strip().rstrip(',')}".replace(f'"{table}"', table)
        for table, definition in rows
        if table != "alembic_version"
        # A column that was added stands in the line of the one before it.
        for line in re.sub(r", (?=\w+ [A-Z]+\b)", ",\n", definition).splitlines()
        if line.strip() not in ("", ")")
    }


def _postgres_definitions(connection: Connection, where: str) -> set[str]:
    constraints = connection.execute(
        text(
            "SELECT conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE connamespace = CAST(:where AS regnamespace)"
        ),
        {"where": where},
    )
    indexes = connection.execute(text("SELECT indexdef FROM pg_indexes WHERE schemaname = :where"), {"where": where})
    texts = (each.replace(f"{where}.", "") for each in (*constraints.scalars(), *indexes.scalars()))
    return {each for each in texts if "alembic_version" not in each}


def test_the_last_migration_carries_the_rules_of_the_triggers() -> None:
    with create_engine("sqlite://").connect() as connection:
        scripts = ScriptDirectory.from_config(configuration(connection))
    last = scripts.get_revision("head")
    assert last is not None
    assert last.module.rules == triggers.fingerprint(), WRITE_ONE


def test_the_next_migration_is_written_from_the_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER / "versions", tmp_path / "versions")
    changed = MetaData()
    for table in schema.metadata.tables.values():
        table.to_metadata(changed)
    changed.tables["sinks"].append_column(Column("colour", Text))
    monkeypatch.setattr("headgate_coordinator.catalog.schema.metadata", changed)
    made = write("paint the sinks", tmp_path / "versions")
    assert made.name == "0011_paint_the_sinks.py"
    assert "add_column(sa.Column('colour', sa.Text(), nullable=True))" in made.read_text()
    assert made.read_text().count("add_column") == 1
    assert f"rules = '{triggers.fingerprint()}'" in made.read_text()


async def test_a_database_that_is_up_to_date_is_left_alone(databases: Databases) -> None:
    store = await databases.open()
    await store.write(create("a"))
    await store.write(migrate_again)
    again = await databases.open()
    assert await again.read(names) == ["a"]


def migrate_again(tx: Tx) -> None:
    migrate(tx.connection)


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_a_newer_database_is_refused_by_reason_and_left_as_it_is(databases: Databases) -> None:
    store = await databases.open()
    await store.write(create("a"))
    await store.write(lambda tx: tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    await store.close()
    with pytest.raises(HeadgateError) as refused:
        await opened(databases.url)
    assert refused.value.reason is CATALOG_TOO_NEW
    assert "9999" in refused.value.message


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_two_that_start_at_once_on_an_empty_database_both_succeed(databases: Databases) -> None:
    stores = await asyncio.gather(*(databases.open() for _ in range(4)))
    await asyncio.gather(*(store.write(create(f"s{number}")) for number, store in enumerate(stores)))
    assert await stores[0].read(lambda tx: tx.revision) == 4


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_a_migration_that_breaks_off_leaves_the_database_as_it_was(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("headgate_coordinator.catalog.triggers.install", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            await opened(databases.url)
    store = await databases.open()
    assert (await store.write(create("a"))).revision == 1


async def test_a_catalog_that_cannot_be_opened_is_unavailable() -> None:
    for url in ("sqlite:////nowhere/at/all/catalog.sqlite", "postgresql://nobody@127.0.0.1:1/none"):
        with pytest.raises(HeadgateError) as refused:
            await opened(url)
        assert refused.value.reason is CATALOG_UNAVAILABLE


@pytest.mark.parametrize("url", ["mysql://root:secret@host/db", "nonsense", "sqlite://", "sqlite:///:memory:"])
async def test_a_url_that_names_no_catalog_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(HeadgateError) as refused:
        await opened(url)
    assert refused.value.reason is INVALID_ARGUMENT
    assert "secret" not in refused.value.message


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_agents_of_the_first_catalog_get_numbers_and_keep_what_refers_to_them(databases: Databases) -> None:
    engine = create_engine(databases.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        command.upgrade(configuration(connection), "0001")
        connection.execute(text("INSERT INTO revision (id, value, compacted) VALUES (1, 0, 0)"))
        for number, name in enumerate(("b", "a"), start=1):
            connection.execute(
                text(
                    "INSERT INTO agents (uid, name, address, slots, slots_used, zone, group_name, labels, roles, "
                    "has_engine, state, state_reason, state_time, incarnation, protocol_version, volume_id, time, "
                    "revision) VALUES (:name, :name, :name, 1, 0, '', '', '{}', '[]', true, 'ACTIVE', '', 0, '', 1, "
                    "'', :time, 0)"
                ),
                {"name": name, "time": number},
            )
        connection.execute(
            text("INSERT INTO network_links (uid, from_uid, to_uid, time, revision) VALUES ('l', 'a', 'b', 0, 0)")
        )
        connection.commit()
    engine.dispose()
    store = await databases.open()
    numbers = text("SELECT name, node_id, kafka_address FROM agents ORDER BY node_id")
    found = await store.read(lambda tx: [tuple(row) for row in tx.connection.execute(numbers)])
    assert found == [("b", 1, ""), ("a", 2, "")]
    with pytest.raises(HeadgateError, match=r"(?i)foreign key"):
        await store.write(lambda tx: tx.connection.execute(text("DELETE FROM agents WHERE name = 'a'")))
    taken = text("SELECT value FROM counters WHERE name = 'node_id'")
    assert await store.read(lambda tx: tx.connection.execute(taken).scalar_one()) == 2


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_topics_and_fragments_of_an_earlier_catalog_are_kept_with_what_refers_to_them(
    databases: Databases,
) -> None:
    engine = create_engine(databases.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        command.upgrade(configuration(connection), "0002")
        connection.execute(text("INSERT INTO revision (id, value, compacted) VALUES (1, 0, 0)"))
        connection.execute(
            text(
                "INSERT INTO queries (uid, name, statement, mode, state, desired_state, stop_mode, has_run, plan, "
                "deployment_deadline_us, drain_deadline_us, time, state_time, revision) VALUES ('q', 'q', '', "
                "'EXACTLY_ONCE', 'STOPPED', 'STOPPED', '', true, '', 1, 0, 0, 0, 0)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO fragments (uid, query_uid, ordinal, kind, node_local, agent_name, incarnation, state, "
                "epoch, slots, slots_held, attempts, last_error, revision) VALUES ('f', 'q', 1, 'SINK', true, 'a', "
                "'', 'STOPPED', 1, 1, false, 0, '', 0)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO topics (uid, name, partitions, durability, format, retention_us, retention_bytes, "
                "segment_bytes, segment_age_us, linger_us, max_message_bytes, group_name, internal, query_uid, "
                "pinned_agent, time, revision) VALUES ('t', 't', 1, 'WAL', 'ARROW', 0, 0, 1, 1, 0, 1, 'default', "
                "true, 'q', 'a', 0, 0)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO partitions (key, topic_uid, ordinal, log_start, committed, reserved, bytes, volume_id, "
                "waiting, revision) VALUES ('t/0', 't', 0, 0, 0, 0, 0, '', '', 0)"
            )
        )
        connection.commit()
    engine.dispose()
    store = await databases.open()
    kept = text("SELECT f.waiting, t.query_uid, t.unused_since FROM fragments f JOIN topics t ON t.query_uid = 'q'")
    assert await store.read(lambda tx: tuple(tx.connection.execute(kept).one())) == ("", "q", None)
    with pytest.raises(HeadgateError, match=r"(?i)foreign key"):
        await store.write(lambda tx: tx.connection.execute(text("DELETE FROM topics")))

    def outlives(tx: Tx) -> int:
        tx.connection.execute(text("DELETE FROM fragments"))
        tx.connection.execute(text("DELETE FROM queries"))
        return int(tx.connection.execute(text("SELECT COUNT(*) FROM topics")).scalar_one())

    assert await store.write(outlives) == 1

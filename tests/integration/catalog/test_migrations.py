"""Bringing a database up to date at start."""

from __future__ import annotations

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Table, text
from sqlalchemy.schema import CheckConstraint

from headgate_common.clock import SystemClock
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.migrations import migrate
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_TOO_NEW, CATALOG_UNAVAILABLE
from tests.integration.catalog.kit import Databases, create, names


async def opened(url: str) -> Store:
    return await connect(url, clock=SystemClock(), ids=RandomIds())


async def test_an_empty_database_is_brought_to_the_schema_of_the_code(store: Store) -> None:
    def differences(tx: Tx) -> list[object]:
        context = MigrationContext.configure(tx.connection, opts={"compare_type": True})
        return list(compare_metadata(context, schema.metadata))

    assert await store.read(differences) == []


async def test_the_checks_of_the_code_are_in_the_database(store: Store) -> None:
    def definitions(tx: Tx) -> str:
        if tx.connection.dialect.name == "sqlite":
            found = tx.connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'table'"))
        else:
            found = tx.connection.execute(text("SELECT conname || ' ' FROM pg_constraint"))
        return " ".join(found.scalars())

    def checks(table: Table) -> set[str]:
        return {str(each.name) for each in table.constraints if isinstance(each, CheckConstraint)}

    found = await store.read(definitions)
    expected = set().union(*(checks(table) for table in schema.metadata.tables.values()))
    assert len(expected) > 20
    assert {name for name in expected if f"{name} " not in found} == set()


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

"""request_id, validate_only and leading: one mechanism for every mutation."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator import errors
from headgate_coordinator.catalog.inline import InlineDatabase
from tests.unit.api.kit import QUERY, Client

SCHEMA = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])


def mutations() -> list[Any]:
    """Each mutation of the API once, for a catalog with agent a and b, source lrb and p, sink out and query q."""
    return [
        catalog.CreateAgentRequest(name="new", address="h:1", slots=1),
        catalog.DropAgentRequest(name="b"),
        catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="b"),
        catalog.CreateLogicalSourceRequest(name="new", schema=SCHEMA),
        catalog.DropLogicalSourceRequest(name="unused"),
        catalog.CreatePhysicalSourceRequest(
            logical_source="unused", agent="a", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/x.csv"}
        ),
        catalog.DropPhysicalSourceRequest(name="spare"),
        catalog.CreateSinkRequest(name="new", schema=SCHEMA, type=catalog.SINK_TYPE_VOID),
        catalog.DropSinkRequest(name="spare"),
        catalog.CreateQueryRequest(statement=QUERY),
        catalog.StopQueryRequest(name="q"),
        catalog.DropQueryRequest(name="q"),
        catalog.ExecuteStatementRequest(statement="CREATE SINK v (x INT32) TYPE VOID; DROP SINK v; SHOW SINKS"),
        catalog.ApplyBundleRequest(
            items=[
                catalog.BundleItem(
                    create_sink=catalog.CreateSinkRequest(name="v", schema=SCHEMA, type=catalog.SINK_TYPE_VOID)
                ),
                catalog.BundleItem(create_query=catalog.CreateQueryRequest(statement=QUERY, name="w")),
            ]
        ),
    ]


@pytest.fixture
async def ready(client: Client) -> Client:
    await client.cluster()
    await client(catalog.CreateAgentRequest(name="b", address="127.0.0.1:7411", slots=1))
    await client(
        catalog.ExecuteStatementRequest(
            statement=f"""
            CREATE LOGICAL SOURCE unused (x INT32);
            CREATE LOGICAL SOURCE other (x INT32);
            CREATE PHYSICAL SOURCE spare FOR other TYPE FILE ON a SET ('/y.csv' AS "SOURCE".FILE_PATH);
            CREATE SINK spare (x INT32) TYPE VOID;
            CREATE QUERY q AS {QUERY};
            """
        )
    )
    return client


@pytest.mark.parametrize("request_", mutations(), ids=lambda request: type(request).__name__)
async def test_validate_only_answers_as_if_done_and_changes_nothing(ready: Client, request_: Any) -> None:
    before = await ready.contents()
    request_.validate_only = True
    request_.request_id = "try"
    tried = await ready(request_)
    assert await ready.contents() == before
    request_.validate_only = False
    done = await ready(request_)
    assert await ready.contents() != before
    assert _without_ids(tried) == _without_ids(done)


def _without_ids(message: Any) -> str:
    """The message as text, without what each try gets anew."""
    text = [
        line for line in str(message).splitlines() if not any(word in line for word in ("uid:", "seconds:", "nanos:"))
    ]
    return "\n".join(line for line in text if "query-" not in line and "source-" not in line)


@pytest.mark.parametrize("request_", mutations(), ids=lambda request: type(request).__name__)
async def test_the_same_request_id_gets_the_same_answer_and_is_done_once(ready: Client, request_: Any) -> None:
    request_.request_id = "once"
    first = await ready(request_)
    after = await ready.contents()
    assert await ready(request_) == first
    assert await ready.contents() == after


@pytest.mark.parametrize("request_", mutations(), ids=lambda request: type(request).__name__)
async def test_the_same_request_id_with_another_body_or_method_is_refused(ready: Client, request_: Any) -> None:
    used = catalog.CreateSinkRequest(name="used", schema=SCHEMA, type=catalog.SINK_TYPE_VOID, request_id="taken")
    await ready(used)
    request_.request_id = "taken"
    error = await ready.refused(request_, errors.REQUEST_ID_CONFLICT)
    assert error.metadata["request_id"] == "taken"


async def test_a_refused_request_is_not_remembered(ready: Client) -> None:
    drop = catalog.DropSinkRequest(name="later", request_id="r")
    await ready.refused(drop, errors.SINK_NOT_FOUND)
    await ready(catalog.CreateSinkRequest(name="later", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    assert (await ready(drop)).sink.name == "later"


async def test_a_replay_is_answered_though_the_catalog_has_moved_on(ready: Client) -> None:
    """The answer of an accepted query comes again even where it could not be planned any more."""
    create = catalog.CreateQueryRequest(name="r", statement="SELECT * FROM lrb INTO out", request_id="r")
    first = await ready(create)
    await ready(catalog.DropQueryRequest(name="r"))
    await ready(catalog.DropAgentRequest(name="a", force=True))
    assert await ready(create) == first


async def test_an_interrupted_execution_goes_on_where_it_ended(ready: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the first of two statements: the retry does not do the first again."""
    request = catalog.ExecuteStatementRequest(
        statement="CREATE SINK one (x INT32) TYPE VOID; CREATE SINK two (x INT32) TYPE VOID", request_id="r"
    )
    writes = 0
    write = ready.store.write

    async def dying(operation: Any, term: int | None = None) -> Any:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise KeyboardInterrupt
        return await write(operation, term)

    monkeypatch.setattr(ready.store, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        await ready(request)
    monkeypatch.setattr(ready.store, "write", write)
    response = await ready(request)
    assert [result.resources[0].sink.name for result in response.results] == ["one", "two"]
    assert not response.HasField("failure")
    assert await ready(request) == response


async def test_a_failed_execution_goes_on_where_it_failed(ready: Client) -> None:
    """What stopped it may have passed: a failure is not remembered, what was done before it is."""
    request = catalog.ExecuteStatementRequest(
        statement="CREATE SINK one (x INT32) TYPE VOID; DROP SINK later; CREATE SINK two (x INT32) TYPE VOID",
        request_id="r",
    )
    failed = await ready(request)
    assert (failed.failure.index, failed.failure.reason) == (1, "SINK_NOT_FOUND")
    await ready(catalog.CreateSinkRequest(name="later", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    response = await ready(request)
    assert [result.resources[0].sink.name for result in response.results] == ["one", "later", "two"]
    assert response.results[0] == failed.results[0]
    assert not response.HasField("failure")
    assert await ready(request) == response


@pytest.mark.parametrize("request_", mutations(), ids=lambda request: type(request).__name__)
async def test_a_standby_refuses_writes_and_names_the_leader(request_: Any) -> None:
    database = InlineDatabase()
    leader = await Client(database, seed=1).lead()
    standby = await Client(database, seed=2).stand_by()
    error = await standby.refused(request_, errors.NOT_LEADER)
    assert error.metadata["leader"] == "coordinator-1:7400"
    assert standby.last_call.trailers == {"headgate-leader": "coordinator-1:7400"}
    for one in (standby, leader):
        await one.close()
    database.close()


async def test_a_standby_answers_reads() -> None:
    database = InlineDatabase()
    leader = await Client(database, seed=1).lead()
    await leader(catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    standby = await Client(database, seed=2).stand_by()
    assert (await standby(catalog.GetSinkRequest(name="s"))).sink.name == "s"
    assert len((await standby(catalog.GetSnapshotRequest())).resources) == 1
    shown = await standby(catalog.ExecuteStatementRequest(statement="SHOW SINKS"))
    assert shown.results[0].table.rows[0].values[0] == "s"
    await leader(catalog.CreateSinkRequest(name="t", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    token = (await leader(catalog.ListSinksRequest(page_size=1))).next_page_token
    assert [sink.name for sink in (await standby(catalog.ListSinksRequest(page_token=token))).sinks] == ["t"]
    for one in (standby, leader):
        await one.close()
    database.close()


async def test_a_term_that_is_over_is_refused_in_the_transaction(
    ready: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that does not know yet that it was deposed cannot write."""
    monkeypatch.setattr(type(ready.coordinator.leadership), "require_term", lambda self: 999)
    error = await ready.refused(catalog.DropSinkRequest(name="spare"), errors.NOT_LEADER)
    assert error.metadata["leader"] == "coordinator-7:7400"


async def test_rules_of_the_proto_are_enforced(client: Client) -> None:
    error = await client.refused(
        catalog.CreateSinkRequest(name="", schema=SCHEMA, type=catalog.SINK_TYPE_UNSPECIFIED), INVALID_ARGUMENT
    )
    fields = {violation.field for detail in error.details for violation in detail.field_violations}  # type: ignore[attr-defined]
    assert fields == {"name", "type"}


async def test_a_plan_that_is_always_outdated_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.cluster()
    from headgate_coordinator.catalog import queries
    from headgate_coordinator.catalog.plan_uses import PlanChanged

    tries = 0

    def changed(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise PlanChanged("agent a became UNREACHABLE")

    monkeypatch.setattr(queries, "create_query", changed)
    error = await client.refused(catalog.CreateQueryRequest(statement=QUERY), errors.PLAN_OUTDATED)
    assert "became UNREACHABLE" in error.message
    assert tries == client.config.limits.plan_attempts

"""Statements one after the other, and bundles that are all or none."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator import errors
from headgate_coordinator.catalog.changes import history
from headgate_coordinator.catalog.inline import InlineDatabase
from tests.unit.api.kit import QUERY, Client, with_limits

SCHEMA = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])
SECRET = "don't tell"


async def execute(client: Client, statement: str, **fields: object) -> catalog.ExecuteStatementResponse:
    response: catalog.ExecuteStatementResponse = await client(
        catalog.ExecuteStatementRequest(statement=statement, **fields)  # type: ignore[arg-type]
    )
    return response


def bundle(*items: object) -> catalog.ApplyBundleRequest:
    """A bundle of statements and requests."""
    made = catalog.ApplyBundleRequest()
    for item in items:
        if isinstance(item, str):
            made.items.add(statement=item)
        else:
            name = type(item).__name__.removesuffix("Request")
            field = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
            getattr(made.items.add(), field).CopyFrom(item)
    return made


async def test_statements_are_done_in_order_and_tell_what_they_made(client: Client) -> None:
    await client.cluster()
    response = await execute(client, f"CREATE QUERY q AS {QUERY}; STOP QUERY q; DROP QUERY q")
    assert [result.verb for result in response.results] == ["CREATE QUERY", "STOP QUERY", "DROP QUERY"]
    states = [result.resources[0].query.desired_state for result in response.results]
    assert states == [catalog.DESIRED_STATE_RUNNING, catalog.DESIRED_STATE_STOPPED, catalog.DESIRED_STATE_DROPPED]


async def test_execution_stops_at_the_first_failure_and_says_what_was_done(client: Client) -> None:
    text = "CREATE SINK a (x INT32) TYPE VOID; DROP SINK ghost; CREATE SINK b (x INT32) TYPE VOID"
    response = await execute(client, text)
    assert [result.resources[0].sink.name for result in response.results] == ["a"]
    failure = response.failure
    assert (failure.index, failure.reason, failure.code) == (1, "SINK_NOT_FOUND", 5)
    assert failure.statement == "DROP SINK ghost"
    assert (await client(catalog.ListSinksRequest())).sinks[0].name == "a"


async def test_a_first_failure_or_unreadable_text_fails_the_call(client: Client) -> None:
    await client.refused(
        catalog.ExecuteStatementRequest(statement="DROP SINK ghost; CREATE SINK a (x INT32) TYPE VOID"),
        errors.SINK_NOT_FOUND,
    )
    error = await client.refused(
        catalog.ExecuteStatementRequest(statement="CREATE SINK a (x INT32) TYPE VOID;\nCREATE SNIK b"),
        errors.PARSE_ERROR,
    )
    (problem,) = error.details
    assert isinstance(problem, catalog.StatementProblem)
    assert (problem.line, problem.column) == (2, 8)
    assert problem.excerpt == "CREATE SNIK b\n       ^"


async def test_a_rehearsal_sees_what_earlier_statements_would_do(client: Client) -> None:
    await client.cluster()
    before = await client.contents()
    text = f"CREATE QUERY q AS {QUERY}; SHOW QUERIES; DROP SINK out; SHOW SINKS"
    response = await execute(client, text, validate_only=True)
    assert response.results[1].table.rows[0].values[0] == "q"
    assert (response.failure.index, response.failure.reason) == (2, "SINK_IN_USE")
    assert await client.contents() == before


async def test_if_exists_and_if_not_exists_skip(client: Client) -> None:
    await client.cluster()
    await execute(client, f"CREATE QUERY q AS {QUERY}")
    text = f"""
        CREATE SINK IF NOT EXISTS out (x INT32) TYPE VOID;
        CREATE LOGICAL SOURCE IF NOT EXISTS lrb (x INT32);
        CREATE PHYSICAL SOURCE IF NOT EXISTS FOR lrb TYPE FILE SET ('/z.csv' AS "SOURCE".FILE_PATH);
        CREATE QUERY IF NOT EXISTS q AS {QUERY};
        DROP SINK IF EXISTS ghost;
    """
    before = await client.contents()
    response = await execute(client, text)
    assert [result.skipped for result in response.results] == [True] * 5
    assert await client.contents() == before


async def test_secrets_in_statements_are_not_told(client: Client) -> None:
    text = f"""CREATE SINK k (x INT32) TYPE KAFKA SET (
        'b:9092' AS "SINK".BOOTSTRAP_SERVERS, 't' AS "SINK".TOPIC, 'SASL_SSL' AS "SINK".SECURITY_PROTOCOL,
        'PLAIN' AS "SINK".SASL_MECHANISM, 'u' AS "SINK".SASL_USERNAME,
        '{SECRET.replace("'", "''")}' AS "SINK".SASL_PASSWORD)"""
    told = [
        await execute(client, text, request_id="r"),
        await execute(client, f"DROP SINK IF EXISTS k; {text}; {text}"),
        await execute(client, "SHOW SINKS; DESCRIBE SINK k"),
        await client(catalog.GetSnapshotRequest()),
    ]
    for response in told:
        assert b"don't tell" not in response.SerializeToString()
        assert b"don''t tell" not in response.SerializeToString()
    with pytest.raises(HeadgateError) as caught:
        await client(bundle(text))
    assert "don" not in str(caught.value.details)
    assert "[redacted]" in told[0].results[0].statement
    escaped = text.replace("don''t", "don\\u0027t").replace("CREATE SINK k", "CREATE SINK k2")
    assert "tell" not in str(await execute(client, escaped))


async def test_secrets_of_a_query_are_neither_kept_nor_told(client: Client) -> None:
    await client.cluster()
    secret = SECRET.replace("'", "''")
    text = f"""CREATE QUERY hushed AS {QUERY} WITH (edges = 'kafka',
        bootstrap_servers = 'b:9092', security_protocol = 'SASL_SSL', sasl_mechanism = 'PLAIN', sasl_username = 'u',
        sasl_password = '{secret}', deadline = 1m)"""
    told = [
        await execute(client, text, request_id="r"),
        await execute(client, f"EXPLAIN {text.partition(' AS ')[2]}"),
        await execute(client, "SHOW QUERIES; DESCRIBE QUERY hushed"),
        await client(catalog.GetQueryRequest(name="hushed")),
        await client(catalog.GetSnapshotRequest()),
    ]
    for response in told:
        assert b"tell" not in response.SerializeToString()
    assert told[3].query.statement == text.replace(secret, "[redacted]")
    assert told[0].results[0].statement == text.replace(secret, "[redacted]")


async def test_an_excerpt_shows_no_secret(client: Client) -> None:
    text = """CREATE SINK k (x INT32) TYPE KAFKA SET ('hush' AS "SINK".SASL_PASSWORD, 'b' AS "SINK".COLOUR)"""
    error = await client.refused(catalog.ExecuteStatementRequest(statement=text), errors.INVALID_CONFIG)
    assert "hush" not in str(error.details)
    excerpts = [detail.excerpt for detail in error.details if isinstance(detail, catalog.StatementProblem)]
    assert any("'****' AS" in excerpt for excerpt in excerpts)
    error = await client.refused(bundle(text), errors.INVALID_CONFIG)
    assert "hush" not in str(error.details)


async def test_show_lists_filters_and_limits(client: Client) -> None:
    await client.cluster()
    for name in ("alpha", "beta", "a_c", "abc"):
        await client(catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))

    async def names(statement: str) -> list[str]:
        response = await execute(client, statement)
        return [row.values[0] for row in response.results[0].table.rows]

    assert await names("SHOW SINKS") == ["a_c", "abc", "alpha", "beta", "out"]
    assert await names("SHOW SINKS LIKE 'a%'") == ["a_c", "abc", "alpha"]
    assert await names("SHOW SINKS LIKE '%a'") == ["alpha", "beta"]
    assert await names("SHOW SINKS LIKE 'a_c'") == ["a_c", "abc"]
    assert await names("SHOW SINKS WHERE type = 'FILE'") == ["out"]
    assert await names("SHOW SINKS LIMIT 2") == ["a_c", "abc"]
    assert await names("SHOW PHYSICAL SOURCES FOR lrb") == ["p"]
    assert await names("SHOW AGENTS WHERE slots > 5") == ["a"]
    await execute(client, f"CREATE QUERY q AS {QUERY}")
    assert (await execute(client, "SHOW FRAGMENTS FOR q")).results[0].resources[0].fragment.query == "q"
    for statement, reason in (
        ("SHOW FRAGMENTS FOR ghost", errors.QUERY_NOT_FOUND),
        ("SHOW PHYSICAL SOURCES FOR ghost", errors.LOGICAL_SOURCE_NOT_FOUND),
    ):
        await client.refused(catalog.ExecuteStatementRequest(statement=statement), reason)


async def test_describe_finds_what_a_name_means(client: Client) -> None:
    await client.cluster()
    await execute(client, f"CREATE QUERY q AS {QUERY}")
    response = await execute(client, "DESCRIBE lrb; DESCRIBE out; DESCRIBE q; DESCRIBE p; DESCRIBE a")
    tables = [result.table for result in response.results]
    assert [list(row.values) for row in tables[0].rows] == [["highway", "INT32", "YES"], ["speed", "FLOAT64", "YES"]]
    assert list(tables[1].columns) == ["column", "type", "null"]
    properties = {row.values[0]: row.values[1] for row in tables[2].rows}
    assert properties["state"] == "PENDING"
    assert properties["statement"].endswith("INTO out")
    assert "fragment 1" in properties
    assert tables[3].rows[0].values[1] == "p"
    assert tables[4].rows[0].values[1] == "a"
    await client.refused(catalog.ExecuteStatementRequest(statement="DESCRIBE ghost"), errors.BIND_ERROR)
    await client.refused(catalog.ExecuteStatementRequest(statement="DESCRIBE SINK lrb"), errors.SINK_NOT_FOUND)


async def test_describe_of_a_name_that_means_several_things_asks_which(client: Client) -> None:
    await client.cluster()
    await execute(client, "CREATE SINK lrb(highway INT32) TYPE VOID")
    message = await client.refused(catalog.ExecuteStatementRequest(statement="DESCRIBE lrb"), errors.BIND_ERROR)
    assert "a logical source and a sink" in str(message)
    assert "DESCRIBE LOGICAL SOURCE lrb or DESCRIBE SINK lrb" in str(message)
    response = await execute(client, "DESCRIBE SINK lrb; DESCRIBE SOURCE lrb")
    assert [len(result.table.rows) for result in response.results] == [1, 2]


async def test_a_full_cluster_explains_and_says_that_it_is_full(client: Client) -> None:
    await client.cluster(slots=2)
    await client.refused(catalog.ExecuteStatementRequest(statement=QUERY), errors.INSUFFICIENT_CAPACITY)
    response = await execute(client, f"EXPLAIN {QUERY}")
    (shown,) = ("\n".join(row.values[0] for row in result.table.rows) for result in response.results)
    assert "cannot be placed now" in shown and "of 2 slots free" in shown
    explained = await client(catalog.ExplainQueryRequest(statement=QUERY))
    assert explained.plan.unplaced and [fragment.agent for fragment in explained.plan.fragments] == ["a", "a", "a"]


async def test_a_show_that_is_too_large_is_refused_and_not_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate_coordinator.catalog import tables

    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    for name in ("a", "b", "c"):
        await client(catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    await client.refused(catalog.ExecuteStatementRequest(statement="SHOW SINKS"), errors.TABLE_TOO_LARGE)
    assert len((await execute(client, "SHOW SINKS LIMIT 3")).results[0].table.rows) == 3


async def test_watch_is_not_a_statement_to_execute(client: Client) -> None:
    await client.refused(
        catalog.ExecuteStatementRequest(statement="WATCH SELECT name FROM queries"), errors.UNSUPPORTED
    )


async def test_a_bundle_is_one_revision(client: Client) -> None:
    await client.cluster()
    request = bundle(
        catalog.CreateLogicalSourceRequest(name="l2", schema=SCHEMA),
        """CREATE PHYSICAL SOURCE p2 FOR l2 TYPE FILE ON a SET ('/2.csv' AS "SOURCE".FILE_PATH);
           CREATE SINK s2 (x INT32) TYPE FILE ON a SET ('/o.csv' AS "SINK".FILE_PATH)""",
        catalog.CreateQueryRequest(name="q2", statement="SELECT x FROM l2", sink="s2"),
        "CREATE QUERY q3 AS SELECT x FROM l2 INTO s2",
    )
    response = await client(request)
    assert [result.verb for result in response.results] == [
        "CREATE LOGICAL SOURCE",
        "CREATE PHYSICAL SOURCE",
        "CREATE SINK",
        "CREATE QUERY",
        "CREATE QUERY",
    ]
    (revision,) = await client.store.read(lambda tx: history(tx, response.revision - 1, 1))
    assert {"l2", "p2", "s2", "q2", "q3"} <= {change.name for change in revision.changes}
    assert response.results[3].resources[0].query.revision == response.revision


async def test_a_bundle_with_one_bad_item_does_nothing_and_names_it(client: Client) -> None:
    await client.cluster()
    good = catalog.CreateLogicalSourceRequest(name="l2", schema=SCHEMA)
    for bad, reason, text in (
        (catalog.DropSinkRequest(name="ghost"), errors.SINK_NOT_FOUND, ""),
        ("DROP SINK ghost", errors.SINK_NOT_FOUND, "DROP SINK ghost"),
        ("DROP SNIK ghost", errors.PARSE_ERROR, ""),
        ("SHOW SINKS", errors.UNSUPPORTED, ""),
        ("CREATE QUERY q AS SELECT nothing FROM lrb INTO out", errors.BIND_ERROR, None),
    ):
        error = await client.refused(bundle(good, bad), reason)
        assert error.metadata["item"] == "1"
        assert error.message.startswith("item 1: ")
        (failure,) = [detail for detail in error.details if isinstance(detail, catalog.StatementFailure)]
        assert (failure.index, failure.reason) == (1, reason.name)
        if text is not None:
            assert failure.statement == text


async def test_items_of_a_bundle_carry_no_request_id(client: Client) -> None:
    for field in ({"request_id": "x"}, {"validate_only": True}):
        error = await client.refused(bundle(catalog.DropSinkRequest(name="s", **field)), INVALID_ARGUMENT)
        assert error.metadata["item"] == "0"


async def test_a_name_dropped_and_created_again_in_a_bundle_is_a_new_resource(client: Client) -> None:
    await client.cluster()
    old = (await client(catalog.GetSinkRequest(name="out"))).sink
    response = await client(bundle("DROP SINK out", "CREATE SINK out (x INT32) TYPE VOID"))
    new = response.results[1].resources[0].sink
    assert new.uid != old.uid
    (revision,) = await client.store.read(lambda tx: history(tx, response.revision - 1, 1))
    assert [(change.before is None, change.after is None) for change in revision.changes] == [
        (False, True),
        (True, False),
    ]


async def test_a_query_cannot_be_dropped_and_created_again_in_a_bundle(client: Client) -> None:
    await client.cluster()
    await execute(client, f"CREATE QUERY q AS {QUERY}")
    error = await client.refused(bundle("DROP QUERY q", f"CREATE QUERY q AS {QUERY}"), errors.QUERY_NAME_LOCKED)
    assert error.metadata["item"] == "1"


async def test_topology_and_uniqueness_are_checked_at_the_end_of_a_bundle(client: Client) -> None:
    agents = [
        catalog.CreateAgentRequest(name=name, address=f"h:{port}", slots=1) for port, name in enumerate("abcd", start=1)
    ]
    link = catalog.CreateNetworkLinkRequest
    await client(
        bundle(
            *agents,
            link(from_agent="a", to_agent="b"),
            link(from_agent="c", to_agent="b"),
            link(from_agent="c", to_agent="d"),
        )
    )
    lonely = catalog.CreateAgentRequest(name="e", address="h:5")
    error = await client.refused(
        bundle("CREATE SINK v (x INT32) TYPE VOID", lonely, "CREATE SINK w (x INT32) TYPE VOID"),
        errors.TOPOLOGY_DISCONNECTED,
    )
    assert error.metadata["item"] == "1"
    await client(bundle(lonely, link(from_agent="e", to_agent="a")))
    source = catalog.CreatePhysicalSourceRequest(
        name="p1", logical_source="l", agent="a", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/x.csv"}
    )
    await client(bundle(catalog.CreateLogicalSourceRequest(name="l", schema=SCHEMA), source))
    source.name = "p2"
    error = await client.refused(bundle("CREATE SINK v (x INT32) TYPE VOID", source), errors.ALREADY_EXISTS)
    assert error.metadata["item"] == "1"
    await client(bundle(source, catalog.DropPhysicalSourceRequest(name="p1")))


async def test_a_bundle_has_a_bounded_number_of_queries() -> None:
    database = InlineDatabase()
    client = await Client(database, with_limits(bundle_queries=2)).lead()
    await client.cluster()
    queries = [f"CREATE QUERY q{number} AS {QUERY}" for number in range(3)]
    await client.refused(bundle(*queries), INVALID_ARGUMENT)
    rehearsal = catalog.ExecuteStatementRequest(statement=";".join(queries), validate_only=True)
    await client.refused(rehearsal, INVALID_ARGUMENT)
    await client(bundle(*queries[:2]))
    await execute(client, queries[2])
    await client.close()
    database.close()


async def test_a_sink_by_field_and_by_into_must_be_the_same(client: Client) -> None:
    await client.cluster()
    create = catalog.CreateQueryRequest(statement=QUERY, sink="OUT", validate_only=True)
    assert list((await client(create)).query.sinks) == ["out"]
    create.sink = "other"
    error = await client.refused(create, errors.SINK_CONFLICT)
    assert error.metadata == {"statement": "out", "request": "other"}
    await client.refused(bundle(catalog.CreateQueryRequest(statement=QUERY, sink="other")), errors.SINK_CONFLICT)


@pytest.mark.parametrize("statement", ["SHOW SINKS", f"{QUERY}; {QUERY}", "DROP SINK out"])
async def test_create_query_takes_one_query(client: Client, statement: str) -> None:
    await client.cluster()
    await client.refused(catalog.CreateQueryRequest(statement=statement), INVALID_ARGUMENT)
    await client.refused(catalog.ExplainQueryRequest(statement=statement), INVALID_ARGUMENT)


async def test_explain_plans_and_stores_nothing(client: Client) -> None:
    await client.cluster()
    before = await client.contents()
    for statement in (QUERY, f"EXPLAIN {QUERY}", f"CREATE QUERY q AS {QUERY}"):
        explained = await client(catalog.ExplainQueryRequest(statement=statement))
        assert explained.plan.fragments
        assert explained.text
    response = await execute(client, f"EXPLAIN {QUERY}")
    assert list(response.results[0].table.columns) == ["plan"]
    assert await client.contents() == before

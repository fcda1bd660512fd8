"""Watch by statement and by fields, and snapshots. What watchers may rely on is tested with the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError, Reason
from headgate_coordinator import errors
from tests.unit.api.kit import QUERY, Client

SCHEMA = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])


class Watcher:
    def __init__(self, client: Client, **fields: Any) -> None:
        self._responses = client.watch(catalog.WatchRequest(**fields)).__aiter__()

    async def next(self) -> catalog.WatchResponse:
        async with asyncio.timeout(30):
            response: catalog.WatchResponse = await anext(self._responses)
            return response

    async def close(self) -> None:
        await self._responses.aclose()  # type: ignore[attr-defined]


async def test_a_statement_and_its_fields_give_the_same_stream(client: Client) -> None:
    by_statement = Watcher(client, statement="WATCH SELECT state, slots FROM agents WHERE slots > 2")
    by_fields = Watcher(client, kinds=[catalog.RESOURCE_KIND_AGENT], where="slots > 2", columns=["state", "slots"])
    first = [await watcher.next() for watcher in (by_statement, by_fields)]
    assert first[0] == first[1]
    assert first[0].snapshot.complete
    await client(catalog.CreateAgentRequest(name="small", address="h:1", slots=1))
    await client(catalog.CreateAgentRequest(name="big", address="h:2", slots=3, zone="unseen"))
    await client.activate("big")
    await client(catalog.DropAgentRequest(name="big"))
    for operation in (catalog.WATCH_OPERATION_CREATE, catalog.WATCH_OPERATION_UPDATE, catalog.WATCH_OPERATION_DROP):
        responses = [await watcher.next() for watcher in (by_statement, by_fields)]
        assert responses[0] == responses[1]
        (event,) = responses[0].events.events
        assert event.operation == operation
        told = event.current if event.HasField("current") else event.previous
        assert (told.agent.name, told.agent.slots, told.agent.zone) == ("big", 3, "")
    for watcher in (by_statement, by_fields):
        await watcher.close()


async def test_a_watch_can_be_of_one_name(client: Client) -> None:
    watcher = Watcher(client, kinds=[catalog.RESOURCE_KIND_SINK], name="B")
    await watcher.next()
    for name in ("a", "b"):
        await client(catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    assert (await watcher.next()).events.events[0].current.sink.name == "b"
    await watcher.close()


async def test_links_are_watched_by_both_ends(client: Client) -> None:
    for port, name in enumerate("ab", start=1):
        await client(catalog.CreateAgentRequest(name=name, address=f"h:{port}"))
    watcher = Watcher(client, name="A -> B")
    await watcher.next()
    await client(catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="b"))
    (event,) = (await watcher.next()).events.events
    assert event.current.network_link.to_agent == "b"
    await watcher.close()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"statement": "WATCH SELECT name FROM agents", "name": "a"}, INVALID_ARGUMENT),
        ({"statement": "SHOW AGENTS"}, INVALID_ARGUMENT),
        ({"statement": "WATCH SELECT nonsense FROM agents"}, errors.BIND_ERROR),
        ({"where": "slots > 1"}, INVALID_ARGUMENT),
        ({"columns": ["slots"], "kinds": [1, 5]}, INVALID_ARGUMENT),
        ({"kinds": [1], "where": "colour = 'blue'"}, errors.BIND_ERROR),
        ({"kinds": [1], "where": "slots >"}, errors.PARSE_ERROR),
        ({"kinds": [1], "columns": ["colour"]}, errors.BIND_ERROR),
        ({"kinds": [99]}, INVALID_ARGUMENT),
        ({"name": "not a name"}, errors.INVALID_NAME),
        ({"from_revision": 10**9}, errors.REVISION_IN_FUTURE),
    ],
)
async def test_a_watch_that_means_nothing_is_refused(client: Client, fields: Any, reason: Reason) -> None:
    with pytest.raises(HeadgateError) as caught:
        await Watcher(client, **fields).next()
    assert caught.value.reason.name == reason.name


async def test_a_snapshot_is_of_one_revision_and_in_order(client: Client) -> None:
    await client.cluster()
    await client(catalog.CreateQueryRequest(name="q", statement=QUERY))
    snapshot = await client(catalog.GetSnapshotRequest())
    kinds = [resource.WhichOneof("resource") for resource in snapshot.resources]
    assert kinds[:5] == ["agent", "logical_source", "physical_source", "sink", "query"]
    # A source, a compute and a sink fragment; two edges, and the error rows of the two fragments that write them.
    assert kinds[5:] == ["fragment"] * 3 + ["topic"] * 4 + ["partition"] * 4
    assert snapshot.revision == client.store.changes.position
    some = await client(catalog.GetSnapshotRequest(kinds=[catalog.RESOURCE_KIND_SINK, catalog.RESOURCE_KIND_AGENT]))
    assert [resource.WhichOneof("resource") for resource in some.resources] == ["agent", "sink"]


async def test_a_snapshot_holds_more_than_one_batch(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate_coordinator.catalog import snapshot

    monkeypatch.setattr(snapshot, "BATCH", 2)
    await client.cluster(slots=20)
    for number in range(5):
        await client(catalog.CreateSinkRequest(name=f"s{number}", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
        await client(catalog.CreateQueryRequest(name=f"q{number}", statement=QUERY))
    found = (await client(catalog.GetSnapshotRequest())).resources
    names = [resource.sink.name for resource in found if resource.HasField("sink")]
    assert names == ["out", "s0", "s1", "s2", "s3", "s4"]
    fragments = [(r.fragment.query, r.fragment.ordinal) for r in found if r.HasField("fragment")]
    assert fragments == sorted(fragments)
    assert {query for query, _ in fragments} == {f"q{number}" for number in range(5)}

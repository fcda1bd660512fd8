"""How runs are doing travels with renewals and is answered with fragments; it is no change of the catalog."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import SESSION_EXPIRED
from tests.unit.api.kit import QUERY, Client


async def fragments(client: Client) -> dict[int, catalog.Fragment]:
    listed = (await client(catalog.ListFragmentsRequest(query="q"))).fragments
    return {fragment.ordinal: fragment for fragment in listed}


async def registered(client: Client) -> str:
    """The session of the agent on which the query is."""
    await client.cluster()
    await client(catalog.CreateQueryRequest(name="q", statement=QUERY))
    answer = await client(
        cluster.RegisterAgentRequest(
            name="a", address="127.0.0.1:7410", incarnation="p1", protocol_version=1, slots=10, has_engine=True
        )
    )
    session: str = answer.session_id
    return session


def renewal(session: str, uid: str, epoch: int, rows: int) -> cluster.RenewSessionRequest:
    report = cluster.FragmentReport(uid=uid, epoch=epoch, progress=catalog.FragmentProgress(rows_in=rows))
    return cluster.RenewSessionRequest(session_id=session, reports=[report])


async def test_what_an_agent_reports_is_answered_with_its_fragment_and_is_no_revision(client: Client) -> None:
    session = await registered(client)
    found = await fragments(client)
    assert not any(fragment.HasField("progress") for fragment in found.values())
    revision = client.store.changes.position
    await client(renewal(session, found[2].uid, found[2].epoch, 17))
    told = await fragments(client)
    assert told[2].progress.rows_in == 17
    assert not told[1].HasField("progress")
    assert client.store.changes.position == revision
    snapshot = await client(catalog.GetSnapshotRequest(kinds=[catalog.RESOURCE_KIND_FRAGMENT]))
    assert not any(resource.fragment.HasField("progress") for resource in snapshot.resources)


async def test_a_report_of_another_epoch_than_the_fragments_is_not_shown(client: Client) -> None:
    session = await registered(client)
    found = await fragments(client)
    await client(renewal(session, found[2].uid, found[2].epoch + 1, 17))
    assert not (await fragments(client))[2].HasField("progress")


async def test_a_report_on_a_session_that_has_ended_counts_for_nothing(client: Client) -> None:
    await registered(client)
    found = await fragments(client)
    with pytest.raises(HeadgateError) as caught:
        await client(renewal("session-gone", found[2].uid, found[2].epoch, 17))
    assert caught.value.reason is SESSION_EXPIRED
    assert not (await fragments(client))[2].HasField("progress")


async def test_agents_are_told_which_fragments_may_still_run(client: Client) -> None:
    await registered(client)
    uids = sorted(fragment.uid for fragment in (await fragments(client)).values())
    answer = await client(cluster.FindFragmentsRequest(uids=[*uids, "fragment-unknown"]))
    assert sorted(answer.uids) == uids

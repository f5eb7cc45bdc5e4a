"""What happened to a sandbox, over server-sent events."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tests.support.http.flows import flow
from tests.support.http.served import Served


@flow("followEvents")
async def test_events_are_told_from_the_first_and_then_as_they_happen(served: Served) -> None:
    path = await served.sandbox()
    async with aclosing(served.client.events("GET", f"{path}/events")) as events:
        seen = [await anext(events)]
        while seen[-1].data["reason"] != "probe_passed":
            seen.append(await anext(events))
        await served.client.post(f"{path}/freeze")
        frozen = await anext(events)
        assert frozen.data["subject"] == path.rsplit("/", 1)[1]
        assert frozen.data["actor"].endswith(served.owner.public_key)
        await served.client.delete(path)
        rest = [event async for event in events]
    assert rest, "the end of the sandbox is told, then the stream ends"
    ids = [int(event.id or 0) for event in [*seen, frozen, *rest]]
    assert ids == sorted(set(ids))


async def test_a_reader_goes_on_from_the_last_event_it_saw(served: Served) -> None:
    path = await served.sandbox()
    known = [event async for event in served.client.events("GET", f"{path}/events?follow=false")]
    assert len(known) >= 2
    after = known[0].id
    for again in (
        served.client.events("GET", f"{path}/events?follow=false&after={after}"),
        served.client.events("GET", f"{path}/events?follow=false", headers={"last-event-id": str(after)}),
    ):
        assert [event.id async for event in again] == [event.id for event in known[1:]]


async def test_the_stream_of_a_sandbox_that_is_gone_ends_even_for_who_saw_its_last_event(
    served: Served,
) -> None:
    path = await served.sandbox()
    await served.client.delete(path)
    known = [event async for event in served.client.events("GET", f"{path}/events")]
    async with asyncio.timeout(5):
        again = served.client.events("GET", f"{path}/events?after={known[-1].id}")
        assert [event async for event in again] == []


async def test_events_of_strangers_are_not_told(served: Served) -> None:
    path = await served.sandbox()
    assert (await (await served.stranger()).get(f"{path}/events")).status_code == 404
    for bad in ("after=-1", "after=x", "after=99999999999999999999"):
        assert (await served.client.get(f"{path}/events?{bad}")).status_code == 422

"""Newer doors before an older guest: each request is answered, or refused in words, and none waits on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandboxer.backends.guest import Command, whole
from sandboxer.kernel.errors import GuestRefused, NotAvailable
from tests.support.guest import Box

Ask = Callable[[Box], Awaitable[object]]


async def _listen(box: Box) -> object:
    relay = await box.guest.listen(3128)
    await relay.close()
    await box.guest.unlisten(3128)
    return relay


async def _watch(box: Box) -> object:
    watched = await box.guest.files.watching("/mnt")
    await box.guest.files.write("/mnt/new", whole(b"x"))
    async for event in watched:
        return event
    return None


async def _write(box: Box) -> object:
    return await box.guest.files.write(
        "/mnt/owned", whole(b"x"), owner="nobody", attributes={"user.e2b.a": "b"}
    )


async def _stat(box: Box) -> object:
    return await box.guest.files.stat("/mnt", attributes="user.e2b.")


async def _mkdir(box: Box) -> object:
    await box.guest.files.mkdir("/mnt/folder/below", owner="nobody")
    return await box.guest.files.stat("/mnt/folder/below")


async def _page(box: Box) -> object:
    return await box.guest.files.list_page("/mnt", limit=10, attributes="user.e2b.")


async def _logs(box: Box) -> object:
    async with await box.guest.run(Command(argv=["echo", "said"])) as process:
        pass
    async with await box.guest.attach(process.process_id) as again:
        return [one async for one in again.output()]


ANSWERED: list[Ask] = [_listen, _watch, _write, _stat, _mkdir, _page, _logs]


@pytest.mark.parametrize("ask", ANSWERED, ids=lambda ask: ask.__name__.strip("_"))
async def test_what_an_older_guest_passes_over_is_answered_all_the_same(old_box: Box, ask: Ask) -> None:
    assert await asyncio.wait_for(ask(old_box), 20)


async def test_a_socket_that_is_not_there_is_refused_by_an_older_guest_in_words(old_box: Box) -> None:
    with pytest.raises(GuestRefused, match="ENOENT"):
        await asyncio.wait_for(old_box.guest.connect_socket("/tmp/some.sock"), 20)


async def test_an_older_guest_tells_nobody_where_it_is_and_says_so(old_box: Box) -> None:
    with pytest.raises(NotAvailable, match="older supervisor"):
        await asyncio.wait_for(old_box.guest.describe({"sandbox.json": "{}", "README": "x"}), 20)

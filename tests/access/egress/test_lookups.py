"""Names that nobody answers for: they cost whoever asks for them, and hold up nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxer.access.egress.proxy.dialer import NAMES_EACH, Dialer, Refused, SystemResolver
from sandboxer.access.egress.proxy.wire import Wire
from sandboxer.kernel.addresses import Lookups, TooManyLookups
from tests.support.http.served import eventually


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was asked for of names below `slow.test`; their name server is silent until the test is over."""
    over, asked, here = threading.Event(), list[str](), socket.getaddrinfo

    def resolve(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if not str(host).endswith(".slow.test"):
            return here("127.0.0.1", port, *rest, **options)
        asked.append(str(host))
        over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield asked
    over.set()


async def test_many_slow_names_hold_up_no_other_work_and_no_other_sandbox(asked: list[str]) -> None:
    # As many threads as anything else may have.
    many = min(32, (os.cpu_count() or 1) + 4)
    resolver = SystemResolver()
    async with asyncio.TaskGroup() as group:
        slow = [
            group.create_task(resolver.addresses(f"{n}.slow.test", owner=f"sbx_{n % (many // 2)}"))
            for n in range(many)
        ]
        await eventually(lambda: len(asked) == many)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(lambda: "done") == "done"
            assert await resolver.addresses("quick.test", owner="sbx_other") == ("127.0.0.1",)
        for one in slow:
            one.cancel()


async def test_one_account_has_few_look_ups_under_way_and_is_told_so(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxer.access.egress.proxy.dialer.RESOLVE_S", 30.0)
    resolver = SystemResolver()
    dialer = Dialer(resolver)

    async def dial(host: str) -> Wire:
        return await dialer.dial(host, 443, lambda _: 0.0, lambda _: None, owner="acc_1")

    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(dial(f"{n}.slow.test")) for n in range(NAMES_EACH)]
        # The same name again is the same look-up.
        slow.append(group.create_task(dial("0.slow.test")))
        await eventually(lambda: len(asked) == NAMES_EACH)
        # Who gives up has not freed a thread.
        for one in slow:
            one.cancel()
        with pytest.raises(Refused) as refused:
            await dial("more.slow.test")
    assert refused.value.deny.reason == "too_many_names"
    assert f"{NAMES_EACH} names are being looked up already for this account" in refused.value.deny.why
    assert len(asked) == NAMES_EACH


async def test_a_turn_is_free_again_when_its_thread_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def resolve(*_: Any, **__: Any) -> Any:
        gate.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    lookups = Lookups("test", each=1, wait_s=0.05)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(lookups.addresses("one.test", owner="me"))
        await asyncio.sleep(0)
        with pytest.raises(TooManyLookups):
            await lookups.addresses("two.test", owner="me")
        gate.set()
        assert await first == ("192.0.2.1",)
    assert await lookups.addresses("two.test", owner="me") == ("192.0.2.1",)


async def test_a_hundred_accounts_with_slow_names_hold_up_no_other(asked: list[str]) -> None:
    """Sixteen of them had all the threads that there were."""
    lookups = Lookups("test")
    async with asyncio.TaskGroup() as group:
        slow = [
            group.create_task(lookups.addresses(f"{n}.slow.test", owner=f"acc_{n % 100}")) for n in range(400)
        ]
        await eventually(lambda: len(asked) == len(slow))
        async with asyncio.timeout(5):
            assert await lookups.addresses("quick.test", owner="another") == ("127.0.0.1",)
        for one in slow:
            one.cancel()


async def test_whoever_asked_for_a_slow_name_has_one_at_a_time_until_one_is_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gates = {name: threading.Event() for name in ("slow.test", "one.test", "two.test")}
    asked: list[str] = []

    def resolve(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        gates[host].wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    lookups = Lookups("test", wait_s=30, slow_s=0.05)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(lookups.addresses("slow.test", owner="me"))
        await eventually(lambda: asked == ["slow.test"])
        await asyncio.sleep(0.06)  # as long as is slow
        gates["slow.test"].set()
        await first
        both = [group.create_task(lookups.addresses(f"{n}.test", owner="me")) for n in ("one", "two")]
        await eventually(lambda: asked == ["slow.test", "one.test"])
        gates["two.test"].set()
        # Who gives up while it waits leaves no turn behind.
        gone = group.create_task(lookups.addresses("three.test", owner="me"))
        await asyncio.sleep(0)
        gone.cancel()
        gates["one.test"].set()
        await asyncio.gather(*both)
    assert asked == ["slow.test", "one.test", "two.test"]
    assert not lookups._turns

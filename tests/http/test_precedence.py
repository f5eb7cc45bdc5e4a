"""Two accounts on real walls: what one takes of the processor, another one hardly notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import replace

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.tasks import own_tasks
from tests.support.http.real import real  # noqa: F401
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client, Credentials

HOGS = 4
ENDLESS = {"argv": ["sh", "-c", "while :; do :; done"]}
# About a third of a second of work.
WORK = {"argv": ["python3", "-c", "sum(n * n for n in range(4_000_000))"]}


async def made(client: Client) -> str:
    answer = await client.post("/v1/sandboxes", {"resources": {"disk_mb": 64}})
    assert answer.status_code == 201, answer.text
    return f"/v1/sandboxes/{answer.json()['id']}"


async def paid_stranger(served: Served, account: str) -> Client:
    stranger = await served.stranger(account)
    paid = {"sats": 10_000_000, "id": f"for-{account}", "reason": "test"}
    assert (await served.client.post(f"/v1/accounts/{account}/adjust", paid)).status_code == 200
    return stranger


async def timed(client: Client, path: str) -> float:
    began = time.monotonic()
    answer = await client.post(f"{path}/exec", WORK)
    assert answer.json()["exit_code"] == 0, answer.text
    return time.monotonic() - began


def gives_way(served: Served) -> Collection[str]:
    return served.platform.sandboxes.operations.work.giving


def comes_last(served: Served, path: str) -> bool:
    backend = served.platform.backends["ext.namespaces"]
    assert isinstance(backend, NamespacesBackend)
    return backend.dependencies.cgroups.is_last(path.rpartition("/")[2])


@pytest.mark.alone
async def test_a_hog_does_not_slow_the_commands_of_another_account(real: Served) -> None:
    """Equal weights would give the other one a fifth of the processor: two and a half times as long here."""
    hog, other = await paid_stranger(real, "hog"), await paid_stranger(real, "other")
    target = await made(other)
    hogs = [await made(hog) for _ in range(HOGS)]
    for path in hogs:
        assert (await hog.post(f"{path}/processes", ENDLESS)).status_code == 201
    quiet, loud = [], []
    for _ in range(3):
        # Each beside the other: whatever else this machine does, it does to both.
        await eventually(lambda: all(comes_last(real, path) for path in hogs), 20)
        loud.append(await timed(other, target))
        for path in hogs:
            assert (await hog.post(f"{path}/freeze")).status_code == 200
        quiet.append(await timed(other, target))
        for path in hogs:
            assert (await hog.post(f"{path}/thaw")).status_code == 200
    assert min(loud) < 1.6 * min(quiet), (loud, quiet)


@pytest.mark.alone
async def test_births_and_deaths_without_pause_do_not_slow_another_account(real: Served) -> None:
    """What the host does for an account counts: a churn of sandboxes that themselves do nothing took both
    cores, and nothing of it was anybody's.
    """
    limits = replace(real.platform.limits, bucket_only=1_000_000, address=1_000_000)
    object.__setattr__(real.platform, "limits", limits)
    churner, other = await paid_stranger(real, "churner"), await paid_stranger(real, "other")
    target, going = await made(other), asyncio.Event()

    async def churn() -> None:
        while True:
            await going.wait()
            assert (await churner.delete(await made(churner))).status_code == 200

    quiet, loud = [], []
    async with own_tasks() as churners:
        for number in range(4):
            churners.start(churn(), name=f"churner {number}")
        for _ in range(4):
            quiet += [await timed(other, target) for _ in range(2)]
            going.set()
            await eventually(lambda: "churner" in gives_way(real), 20)
            loud += [await timed(other, target) for _ in range(2)]
            going.clear()
            await eventually(lambda: "churner" not in gives_way(real), 60)
    assert min(loud) < 1.6 * min(quiet), (loud, quiet)


@pytest.mark.alone
async def test_children_of_an_account_are_no_others(real: Served) -> None:
    """Who cuts a key for each sandbox would come last in one of them and first in all others."""
    hog = await paid_stranger(real, "hog")
    cut = {
        "name": "child",
        "budget_sats": 1_000_000,
        "scopes": ["exec", "sandboxes:create"],
        "depth": 0,
        "slots": 1,
    }
    answer = await hog.post("/v1/keys/delegated", cut)
    assert answer.status_code == 201, answer.text
    child = real.as_(Credentials(answer.json()["public_key"], answer.json()["secret_key"]))
    busy, idle = await made(child), await made(hog)
    assert (await child.post(f"{busy}/processes", ENDLESS)).status_code == 201
    # As long as nobody else is there.
    assert (await child.post(f"{busy}/exec", WORK)).status_code == 200
    assert not comes_last(real, busy)
    other = await paid_stranger(real, "other")
    assert (await other.post("/v1/sandboxes", {"resources": {"disk_mb": 64}})).status_code == 201
    await eventually(lambda: comes_last(real, busy), 20)
    assert comes_last(real, idle)

"""`Idempotency-Key`: the same answer again, and nothing made twice."""

from __future__ import annotations

import asyncio
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.identity.keys import Keys
from sandboxer.kernel.errors import Unavailable
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.settings import Settings
from sandboxer.store.idempotency import abandon_all_in_flight
from tests.support.http.served import Served, eventually, serving


async def test_the_same_key_and_request_get_the_first_answer(served: Served) -> None:
    head = {"idempotency-key": "order-1"}
    first = await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
    again = await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert len(served.backend.boxes) == 1


async def test_the_same_key_with_another_request_is_a_conflict(served: Served) -> None:
    head = {"idempotency-key": "order-1"}
    await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
    other = await served.client.post("/v1/sandboxes", {"name": "b"}, headers=head)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_conflict"
    assert len(served.backend.boxes) == 1


async def test_two_accounts_may_choose_the_same_key(served: Served) -> None:
    head = {"idempotency-key": "order-1"}
    await served.client.post("/v1/sandboxes", {}, headers=head)
    stranger = await served.stranger()
    assert (await stranger.post("/v1/sandboxes", {}, headers=head)).status_code == 201
    assert len(served.backend.boxes) == 2


async def test_a_create_that_failed_may_be_tried_again_with_the_same_key(served: Served) -> None:
    head = {"idempotency-key": "order-1"}
    failed = await served.client.post("/v1/sandboxes", {"profile": "profile.none"}, headers=head)
    assert failed.status_code == 422
    again = await served.client.post("/v1/sandboxes", {"profile": "profile.none"}, headers=head)
    assert again.status_code == 422
    assert "idempotent-replayed" not in again.headers


async def test_of_two_at_once_one_makes_it_and_the_other_waits_its_turn(served: Served) -> None:
    head = {"idempotency-key": "order-1"}
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(served.client.post("/v1/sandboxes", {}, headers=head)) for _ in range(2)]
    statuses = sorted(task.result().status_code for task in both)
    assert statuses in ([201, 201], [201, 409])
    assert len(served.backend.boxes) == 1


async def test_a_process_is_started_once(served: Served) -> None:
    path = await served.sandbox()
    head = {"idempotency-key": "p"}
    first = await served.client.post(f"{path}/processes", {"argv": ["sleep", "600"]}, headers=head)
    again = await served.client.post(f"{path}/processes", {"argv": ["sleep", "600"]}, headers=head)
    assert first.json()["process_id"] == again.json()["process_id"]
    assert len((await served.client.get(f"{path}/processes")).json()["processes"]) == 1


async def test_a_secret_is_never_kept_and_the_second_answer_says_so(served: Served) -> None:
    head = {"idempotency-key": "k"}
    body = {"name": "k", "account": "team"}
    first = await served.client.post("/v1/keys", body, headers=head)
    again = await served.client.post("/v1/keys", body, headers=head)
    assert first.status_code == 201
    assert again.status_code == 409
    assert "secret" in again.json()["detail"]
    assert len((await served.client.get("/v1/keys")).json()["keys"]) == 2
    for file in served.state_dir.rglob("*"):
        if file.is_file():
            assert first.json()["secret_key"].encode() not in file.read_bytes(), file


async def test_a_crash_before_the_answer_was_kept_makes_no_second_sandbox(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox is ready, its record written; the server dies before the answer is stored."""
    backend = Scripted(name="ext.namespaces")
    head = {"idempotency-key": "order-1"}

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    async with serving(settings, {"ext.namespaces": backend}) as served:
        with monkeypatch.context() as dying:
            dying.setattr("sandboxer.store.idempotency.finish", die)
            lost = await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
            assert lost.status_code == 500
    (made,) = backend.boxes
    async with serving(settings, {"ext.namespaces": backend}) as served:
        other = await served.client.post("/v1/sandboxes", {"name": "b"}, headers=head)
        assert other.json()["code"] == "idempotency_conflict"
        again = await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
        assert (again.status_code, again.json()["id"]) == (201, made), again.text
        assert again.headers["location"] == f"/v1/sandboxes/{made}"
        third = await served.client.post("/v1/sandboxes", {"name": "a"}, headers=head)
        assert third.json()["id"] == made
        assert set(backend.boxes) == {made}


async def test_time_is_added_once_though_the_answer_was_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await served.sandbox(ttl="10m")
    head, more = {"idempotency-key": "more-1"}, {"duration": "5m"}

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    with monkeypatch.context() as dying:
        dying.setattr("sandboxer.store.idempotency.finish", die)
        lost = await served.client.send("PATCH", f"{path}/ttl", body=more, headers=head)
        assert lost.status_code == 500
    # As at the next start.
    await served.platform.store.write(abandon_all_in_flight)
    for _ in range(2):
        again = await served.client.send("PATCH", f"{path}/ttl", body=more, headers=head)
        assert (again.status_code, again.json()["ttl"]) == (200, "15m"), again.text
    other = await served.client.send("PATCH", f"{path}/ttl", body={"duration": "6m"}, headers=head)
    assert other.json()["code"] == "idempotency_conflict"
    await served.client.send("PATCH", f"{path}/ttl", body=more, headers={"idempotency-key": "more-2"})
    assert (await served.client.get(path)).json()["ttl"] == "20m"


async def test_a_crash_before_a_cut_key_was_answered_moves_no_second_budget(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is lost with the answer, and the repeat says so; the budget moved once."""
    head = {"idempotency-key": "child-1"}
    cut = {"name": "child", "budget_sats": 100, "scopes": ["sandboxes:read"]}

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        parent = await served.stranger("team")
        credit = {"sats": 1000, "id": "c", "reason": "test"}
        assert (await served.client.post("/v1/accounts/team/adjust", credit)).status_code == 200
        with monkeypatch.context() as dying:
            dying.setattr("sandboxer.store.idempotency.spend", die)
            lost = await parent.post("/v1/keys/delegated", cut, headers=head)
            assert lost.status_code == 500, lost.text
        credentials = parent.credentials
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        parent = served.as_(credentials)
        for _ in range(2):
            again = await parent.post("/v1/keys/delegated", cut, headers=head)
            assert again.status_code == 409, again.text
            assert "secret" in again.json()["detail"]
        assert (await parent.get("/v1/accounts/me")).json()["money"]["balance"] == 900
        assert len((await parent.get("/v1/keys/tree")).json()["children"]) == 1


async def test_a_commit_whose_answer_was_lost_makes_no_second_key(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database went away just after it had committed."""
    head, body = {"idempotency-key": "k"}, {"name": "k", "account": "team"}
    create = Keys.create

    async def create_and_lose(self: Keys, *args: Any, **options: Any) -> NoReturn:
        await create(self, *args, **options)
        raise Unavailable(why="the database went away during the commit; look before retrying")

    with monkeypatch.context() as losing:
        losing.setattr(Keys, "create", create_and_lose)
        assert (await served.client.post("/v1/keys", body, headers=head)).status_code == 503
    again = await served.client.post("/v1/keys", body, headers=head)
    assert again.status_code == 409, again.text
    known = (await served.client.get("/v1/keys")).json()["keys"]
    assert [key["account"] for key in known].count("team") == 1


async def test_a_crash_while_it_was_being_made_lets_the_repeat_make_it(settings: Settings) -> None:
    """Killed in `provisioning`: at the start it is undone, and the repeat may begin anew."""
    head = {"idempotency-key": "order-1"}
    slow = Scripted(name="ext.namespaces", boot_takes=timedelta(seconds=600))
    async with serving(settings, {"ext.namespaces": slow}) as served:
        # Killed, not stopped: nothing is undone, and the key stays as it is.
        asking = asyncio.create_task(served.client.post("/v1/sandboxes", {}, headers=head))
        await eventually(lambda: any(s.state is State.PROVISIONING for s in _living(served)))
        (half,) = (sandbox.id for sandbox in _living(served))
        copied = shutil.copytree(settings.state_dir, settings.state_dir.with_name("crashed"))
        asking.cancel()
    after = settings.model_copy(update={"state_dir": Path(copied)})
    quick = Scripted(name="ext.namespaces")
    async with serving(after, {"ext.namespaces": quick}) as served:
        again = await served.client.post("/v1/sandboxes", {}, headers=head)
        assert again.status_code == 201, again.text
        assert set(quick.boxes) == {again.json()["id"]}
        assert again.json()["id"] != half


async def test_a_client_that_hung_up_finds_what_it_asked_for(settings: Settings) -> None:
    head = {"idempotency-key": "order-1"}
    slow = Scripted(name="ext.namespaces", boot_takes=timedelta(seconds=1))
    async with serving(settings, {"ext.namespaces": slow}) as served:
        asking = asyncio.create_task(served.client.post("/v1/sandboxes", {}, headers=head))
        await eventually(lambda: bool(_living(served)))
        asking.cancel()
        await asyncio.wait([asking])
        (half,) = (sandbox.id for sandbox in _living(served))
        deadline = time.monotonic() + 10
        while (again := await served.client.post("/v1/sandboxes", {}, headers=head)).status_code == 409:
            assert time.monotonic() < deadline, again.text
            await asyncio.sleep(0.05)
        assert (again.status_code, again.json()["id"]) == (201, half), again.text
        assert set(slow.boxes) == {half}


def _living(served: Served) -> list[Sandbox]:
    return list(served.platform.sandboxes.repository.living())


@pytest.mark.parametrize("key", ["", "x" * 256, "two words"])
async def test_a_key_that_is_no_key_is_refused(served: Served, key: str) -> None:
    answer = await served.client.post("/v1/sandboxes", {}, headers={"idempotency-key": key})
    assert answer.status_code == 422
    assert served.backend.boxes == {}

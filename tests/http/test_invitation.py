"""With charging `auto` and nothing for sale, a platform is for those to whom its operator opened it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import NoCapacity
from sandboxer.settings import Settings
from tests.support.http.accounts import cut
from tests.support.http.served import Served, serving
from tests.support.http.wallets import Session, sign_in


@pytest.fixture
async def quiet(settings: Settings) -> AsyncIterator[Served]:
    chosen = settings.model_copy(update={"charging": "auto"})
    async with serving(chosen, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


@pytest.fixture
async def wallet(quiet: Served) -> Session:
    return await sign_in(quiet.client.http, "a stranger")


async def test_people_of_the_operator_create_for_nothing(quiet: Served) -> None:
    colleague = await quiet.stranger("colleague")
    made = await colleague.post("/v1/sandboxes", {})
    assert made.status_code == 201, made.text
    child = await cut(quiet, colleague, scopes=["sandboxes:create"])
    assert (await child.post("/v1/sandboxes", {})).status_code == 201
    told = (await colleague.get("/v1/accounts/me")).json()["money"]
    assert (told["available"], told["debt"], told["rate_msats"]) == (0, 0, 0)


async def test_a_wallet_that_nobody_invited_makes_nothing_and_is_told_whom_to_ask(
    quiet: Served, wallet: Session
) -> None:
    for path, body in (
        ("/v1/sandboxes", {}),
        ("/v1/volumes", {"name": "mine", "size_mb": 10}),
        ("/v1/execute", {"language": "python", "code": "print(1)"}),
        ("/v1/services", {"name": "web", "command": ["true"], "port": 80}),
        ("/v1/webhooks", {"url": "https://example.com/hook"}),
        ("/v1/keys/delegated", {"name": "child", "scopes": ["sandboxes:create"]}),
        ("/v1/images/import", {}),
    ):
        refused = await wallet.send("POST", path, body)
        assert refused.status_code == 403, (path, refused.text)
        problem = refused.json()
        assert problem["reason"] == "not_invited", (path, problem)
        assert f"account create --id {wallet.account}" in problem["next_step"], problem
    assert quiet.backend.boxes == {}
    assert (await wallet.send("GET", "/v1/sandboxes")).json()["sandboxes"] == []
    assert (await wallet.send("GET", "/v1/accounts/me")).status_code == 200


async def test_an_unknown_caller_is_asked_to_sign_in_and_not_for_money(quiet: Served) -> None:
    answer = await quiet.client.http.post("/v1/sandboxes", json={})
    assert answer.status_code == 401, answer.text


async def test_the_operator_opens_the_account_of_a_wallet_once(quiet: Served, wallet: Session) -> None:
    asked = {"id": wallet.account, "reason": "a colleague"}
    opened = await quiet.client.post("/v1/accounts", asked)
    assert opened.status_code == 201, opened.text
    assert (await wallet.send("POST", "/v1/sandboxes", {})).status_code == 201
    assert (await quiet.client.post("/v1/accounts", asked)).status_code == 409


async def test_no_stranger_opens_an_account(quiet: Served, wallet: Session) -> None:
    asked = {"id": wallet.account, "reason": "mine"}
    assert (await wallet.send("POST", "/v1/accounts", asked)).status_code == 403
    colleague = await quiet.stranger("colleague")
    assert (await colleague.post("/v1/accounts", asked)).status_code == 403
    # A key for somebody else's account would open it too.
    assert (await colleague.post("/v1/keys", {"name": "k", "account": wallet.account})).status_code == 403
    assert (await wallet.send("POST", "/v1/sandboxes", {})).status_code == 403


async def test_slots_count_also_where_nobody_pays(quiet: Served) -> None:
    colleague = await quiet.stranger("colleague")
    scopes = ["sandboxes:create", "sandboxes:manage", "sandboxes:destroy"]
    child = await cut(quiet, colleague, scopes=scopes, slots=1)
    quiet.backend.fail_next("provision", NoCapacity(resource="room", why="the host is full"))
    failed = (await child.post("/v1/sandboxes", {})).json()["sandbox_id"]
    assert (await child.post("/v1/sandboxes", {})).status_code == 201
    refused = await child.post(f"/v1/sandboxes/{failed}/recreate")
    assert (refused.status_code, refused.json()["reason"]) == (403, "slots"), refused.text
    assert len(quiet.backend.boxes) == 1

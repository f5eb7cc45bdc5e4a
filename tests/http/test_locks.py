"""Locks over HTTP: what is locked is destroyed, wiped and unlocked only with the account's other factor."""

from __future__ import annotations

import asyncio

from tests.support.http.accounts import cut, funded, with_both
from tests.support.http.flows import flow
from tests.support.http.served import Served
from tests.support.http.signed import Client
from tests.support.http.wallets import key_proof, proof, sign_in
from tests.support.signers import Signer


async def locked_box(client: Client) -> str:
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    answer = await client.post(f"{path}/lock")
    assert answer.status_code == 200, answer.text
    assert answer.json()["locked_at"] is not None
    return path


@flow("lockSandbox", "unlockSandbox", "destroySandbox")
async def test_a_key_locks_and_only_its_wallet_lets_it_destroy(served: Served) -> None:
    client, session = await with_both(served)
    path = await locked_box(client)
    for method, target in (("DELETE", path), ("POST", f"{path}/unlock"), ("POST", f"{path}/recreate")):
        asked = await client.send(method, target)
        assert asked.status_code == 428, asked.text
        assert asked.json()["factor"] == "wallet"
    # Reading, stopping and extending are nobody's loss.
    assert (await client.post(f"{path}/stop")).status_code == 200
    assert (await client.post(f"{path}/resume")).status_code == 200
    asked = (await client.post(f"{path}/unlock")).json()
    unlocked = await client.post(f"{path}/unlock", headers=proof(asked, session.signer))
    assert unlocked.status_code == 200, unlocked.text
    assert unlocked.json()["locked_at"] is None
    assert (await client.post(f"{path}/unlock")).status_code == 200
    assert (await client.delete(path)).json()["state"] == "destroyed"


async def test_a_wallet_session_needs_the_key(served: Served) -> None:
    client, session = await with_both(served)
    path = await locked_box(client)
    asked = await session.send("DELETE", path)
    assert (asked.status_code, asked.json()["factor"]) == (428, "api_key")
    made = client.credentials
    gone = await session.send("DELETE", path, **key_proof(asked.json(), made.public_key, made.secret_key))
    assert gone.json()["state"] == "destroyed"
    # Gone already is success, and asks for nothing.
    assert (await session.send("DELETE", path)).status_code == 200


@flow("recreateSandbox")
async def test_wiping_a_locked_one_is_confirmed_and_leaves_it_locked(served: Served) -> None:
    client, session = await with_both(served)
    path = await locked_box(client)
    asked = (await client.post(f"{path}/recreate")).json()
    wiped = await client.post(f"{path}/recreate", headers=proof(asked, session.signer))
    assert wiped.status_code == 200, wiped.text
    assert wiped.json()["locked_at"] is not None
    assert (await client.delete(path)).status_code == 428


async def test_a_proof_allows_one_act_on_one_sandbox_once(served: Served) -> None:
    client, session = await with_both(served)
    first, second = await locked_box(client), await locked_box(client)
    answer = proof((await client.delete(first)).json(), session.signer)
    for method, target in (("DELETE", second), ("POST", f"{first}/unlock")):
        asked = (await client.delete(first)).json()
        refused = await client.send(method, target, headers=proof(asked, session.signer))
        assert (refused.status_code, refused.json()["reason"]) == (401, "bad_nonce"), target
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(client.post(f"{first}/recreate")) for _ in range(4)]
    asked = tries[0].result().json()
    again = proof(asked, session.signer)
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(client.post(f"{first}/recreate", headers=again)) for _ in range(4)]
    assert sorted(one.result().status_code for one in tries) == [200] + [401] * 3
    assert (await client.delete(first, headers=answer)).status_code == 200


async def test_the_factor_that_asked_cannot_answer_and_strangers_wallets_cannot_either(
    served: Served,
) -> None:
    client, session = await with_both(served)
    await sign_in(served.client.http, "mallory")
    path = await locked_box(client)
    asked = (await client.delete(path)).json()
    own = {**asked, "factor": "api_key"}
    by_key = key_proof(own, client.credentials.public_key, client.credentials.secret_key)
    assert (await client.delete(path, headers=by_key)).status_code in (401, 422)
    for signer in (Signer.named("mallory"), Signer.named("nobody")):
        asked = (await client.delete(path)).json()
        assert (await client.delete(path, headers=proof(asked, signer))).status_code == 401
    asked = (await client.delete(path)).json()
    assert (await client.delete(path, headers=proof(asked, session.signer))).status_code == 200


async def test_an_account_with_one_factor_is_told_to_get_another_before_it_locks(served: Served) -> None:
    team = await served.stranger("team")
    path = f"/v1/sandboxes/{(await team.post('/v1/sandboxes', {})).json()['id']}"
    refused = await team.post(f"{path}/lock")
    assert (refused.status_code, refused.json()["reason"]) == (409, "one_factor")
    assert "Link a wallet" in refused.json()["next_step"]
    session = await sign_in(served.client.http, "lonely")
    made = await session.send("POST", "/v1/sandboxes", {})
    refused = await session.send("POST", f"/v1/sandboxes/{made.json()['id']}/lock")
    assert (refused.status_code, refused.json()["reason"]) == (409, "one_factor")
    assert "API key" in refused.json()["next_step"]


async def test_losing_the_other_factor_does_not_weaken_the_lock(served: Served) -> None:
    client, _ = await with_both(served)
    path = await locked_box(client)
    address = (await client.get("/v1/auth/wallets")).json()["wallets"][0]["address"]
    assert (await client.delete(f"/v1/auth/wallets/{address}")).status_code == 204
    refused = await client.delete(path)
    assert (refused.status_code, refused.json()["reason"]) == (409, "one_factor")


async def test_one_factor_cannot_put_its_own_in_place_of_the_other(served: Served) -> None:
    """Whoever stole the key ends the wallet and links another; whoever stole the wallet, the reverse."""
    client, _ = await with_both(served)
    path = await locked_box(client)
    address = (await client.get("/v1/auth/wallets")).json()["wallets"][0]["address"]
    assert (await client.delete(f"/v1/auth/wallets/{address}")).status_code == 204
    link = {"nonce": "0" * 64, "address": Signer.named("mallory").evm, "signature": "0x" + "00" * 65}
    refused = await client.post("/v1/auth/wallets", link)
    assert (refused.status_code, refused.json()["reason"]) == (409, "one_factor"), refused.text
    assert "operator" in refused.json()["next_step"]
    assert (await client.delete(path)).status_code == 409

    client, session = await with_both(served, "bob")
    await locked_box(client)
    key = client.credentials.public_key
    asked = await session.send("POST", f"/v1/keys/{key}/regenerate")
    assert (asked.status_code, asked.json()["factor"]) == (428, "api_key")
    assert (await session.send("DELETE", f"/v1/keys/{key}")).status_code == 204
    refused = await session.send("POST", "/v1/keys", {"name": "mine"})
    assert (refused.status_code, refused.json()["reason"]) == (409, "one_factor"), refused.text


async def test_others_cannot_lock_what_they_cannot_see(served: Served) -> None:
    client, _ = await with_both(served)
    stranger, _ = await with_both(served, "mallory")
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    for verb in ("lock", "unlock"):
        assert (await stranger.post(f"{path}/{verb}")).status_code == 404
        assert (await stranger.post(f"/v1/sandboxes/sbx_{'0' * 26}/{verb}")).status_code == 404


async def test_a_delegated_key_needs_the_scope_to_manage(served: Served) -> None:
    root = await funded(served, "root")
    child = await cut(served, root, scopes=["sandboxes:create", "sandboxes:read"], slots=1, budget_sats=100)
    path = f"/v1/sandboxes/{(await child.post('/v1/sandboxes', {})).json()['id']}"
    for verb in ("lock", "unlock"):
        refused = await child.post(f"{path}/{verb}")
        assert (refused.status_code, refused.json()["reason"]) == (403, "missing_scope")

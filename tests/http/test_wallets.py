"""Signing in with a wallet, over HTTP: sessions, Sign-in-with-X, linked wallets, second proofs, genesis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.settings import Settings, load_settings
from sandboxer.wiring import open_platform
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials
from tests.support.http.wallets import Session, key_proof, sign_in, siwx_header, siwx_message
from tests.support.signers import Signer


@flow("challengeWallet", "openSession", "closeSession")
async def test_a_wallet_opens_a_session_acts_with_it_and_ends_it(served: Served) -> None:
    session = await sign_in(served.client.http, "alice")
    assert (await session.send("GET", "/v1/sandboxes")).json() == {"sandboxes": [], "next_cursor": None}
    me = (await session.send("GET", "/v1/accounts/me")).json()
    assert me["account"]["id"] == session.account
    again = await sign_in(served.client.http, "alice")
    assert again.account == session.account
    assert (await session.send("DELETE", "/v1/auth/session")).status_code == 204
    over = await session.send("GET", "/v1/sandboxes")
    assert over.status_code == 401
    assert (await again.send("GET", "/v1/sandboxes")).status_code == 200


async def test_a_challenge_serves_one_try_also_for_many_at_once(served: Served) -> None:
    http, signer = served.client.http, Signer.named("racer")
    challenge = (await http.post("/v1/auth/challenge")).json()
    body = {"nonce": challenge["nonce"], "signature": signer.sign_evm(challenge["message"])}
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(http.post("/v1/auth/session", json=body)) for _ in range(8)]
    assert sorted(one.result().status_code for one in tries) == [201] + [401] * 7


async def test_a_wrong_signature_burns_the_nonce(served: Served) -> None:
    http, signer = served.client.http, Signer.named("alice")
    challenge = (await http.post("/v1/auth/challenge")).json()
    wrong = {"nonce": challenge["nonce"], "signature": "0x" + "11" * 65}
    assert (await http.post("/v1/auth/session", json=wrong)).status_code == 401
    right = {"nonce": challenge["nonce"], "signature": signer.sign_evm(challenge["message"])}
    assert (await http.post("/v1/auth/session", json=right)).status_code == 401


@flow("offerSiwx", "signInWithX")
async def test_sign_in_with_x_gives_a_session_or_serves_one_request(served: Served) -> None:
    http, signer = served.client.http, Signer.named("alice")
    message = await siwx_message(http, signer)
    body = {"message": message.text(), "signature": signer.sign_evm(message.text())}
    opened = await http.post("/v1/auth/siwx", json=body)
    assert opened.status_code == 201, opened.text
    assert (await http.post("/v1/auth/siwx", json=body)).status_code == 401
    message = await siwx_message(http, signer)
    header = {"sign-in-with-x": siwx_header(message, signer.sign_evm(message.text()))}
    me = await http.get("/v1/accounts/me", headers=header)
    assert me.json()["account"]["id"] == opened.json()["account"]
    replayed = await http.get("/v1/accounts/me", headers=header)
    assert replayed.status_code == 401


async def test_a_request_that_names_two_callers_is_refused(served: Served) -> None:
    session = await sign_in(served.client.http, "alice")
    signed = served.client.request("GET", "/v1/sandboxes").headers
    message = await siwx_message(served.client.http, session.signer)
    siwx = siwx_header(message, session.signer.sign_evm(message.text()))
    for mixed in (
        {"authorization": f"Bearer {session.token}", "x-signature": signed["x-signature"]},
        {"authorization": f"Bearer {session.token}", "sign-in-with-x": siwx},
        {"sign-in-with-x": siwx, "authorization": signed["authorization"]},
    ):
        answer = await served.client.http.get("/v1/sandboxes", headers=mixed)
        assert answer.status_code == 401
        assert answer.json()["reason"] == "two_callers"


@flow("listWallets", "challengeLink", "linkWallet", "revokeWallet")
async def test_a_wallet_is_linked_to_an_account_with_a_second_proof_and_revoked(served: Served) -> None:
    team = await served.stranger("team")
    signer = Signer.named("second")
    challenge = (await team.post("/v1/auth/wallets/challenge")).json()
    body = {
        "nonce": challenge["nonce"],
        "address": signer.evm,
        "signature": signer.sign_evm(challenge["message"]),
    }
    asked = await team.post("/v1/auth/wallets", body)
    assert asked.status_code == 428
    answer = key_proof(asked.json(), team.credentials.public_key, team.credentials.secret_key)
    linked = await team.post("/v1/auth/wallets", body, headers=answer)
    assert linked.status_code == 201, linked.text
    address = linked.json()["wallets"][0]["address"]
    session = await sign_in(served.client.http, "second")
    assert session.account == "team"
    listed = (await team.get("/v1/auth/wallets")).json()["wallets"]
    assert [one["address"] for one in listed] == [address]
    other = await served.stranger("other")
    assert (await other.get("/v1/auth/wallets")).json() == {"wallets": []}
    assert (await other.delete(f"/v1/auth/wallets/{address}")).status_code == 404
    assert (await team.delete(f"/v1/auth/wallets/{address}")).status_code == 204
    assert (await session.send("GET", "/v1/sandboxes")).status_code == 401


@flow("regenerateKey")
async def test_a_stolen_session_makes_no_key_and_its_wallet_does(served: Served) -> None:
    session = await sign_in(served.client.http, "alice")
    refused = await session.send("POST", "/v1/keys", {"name": "mine"})
    assert refused.status_code == 428
    assert refused.json()["code"] == "second_proof_needed"
    thief = Session(session.http, session.token, session.account, Signer.named("thief"))
    assert (await thief.confirmed("POST", "/v1/keys", {"name": "mine"})).status_code == 401
    made = await session.confirmed("POST", "/v1/keys", {"name": "mine"})
    assert made.status_code == 201, made.text
    first = Credentials(made.json()["public_key"], made.json()["secret_key"])
    assert (await served.as_(first).get("/v1/accounts/me")).json()["account"]["id"] == session.account
    path = f"/v1/keys/{first.public_key}/regenerate"
    renewed = await session.confirmed("POST", path)
    assert renewed.status_code == 200, renewed.text
    assert (await served.as_(first).get("/v1/sandboxes")).json()["reason"] == "bad_signature"
    now = Credentials(first.public_key, renewed.json()["secret_key"])
    assert (await served.as_(now).get("/v1/sandboxes")).status_code == 200
    stranger = await served.stranger("other")
    assert (await stranger.post(path)).status_code == 404


@pytest.fixture
async def gated(settings: Settings) -> AsyncIterator[Served]:
    """A registry that nobody answers at: the gate fails closed."""
    demanding = settings.model_copy(
        update={"genesis_demanded": True, "genesis_registry_url": "http://127.0.0.1:9"}
    )
    async with serving(demanding, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


@flow("challengeGenesis")
async def test_where_genesis_is_demanded_a_create_needs_a_proof(gated: Served) -> None:
    team = await gated.stranger("team")
    refused = await team.post("/v1/sandboxes", {})
    assert refused.status_code == 403
    assert refused.json()["reason"] == "genesis_needed"
    challenge = (await team.post("/v1/auth/genesis")).json()
    assert challenge["account"] == "team"
    assert challenge["nonce"] in challenge["btc_message"]
    assert (await gated.client.post("/v1/sandboxes", {})).status_code == 201


async def test_without_a_registry_there_is_no_gate(served: Served) -> None:
    assert (await served.client.post("/v1/auth/genesis")).status_code == 422


async def test_production_refuses_to_start_without_the_session_secret(settings: Settings) -> None:
    production = settings.model_copy(update={"production": True})
    with pytest.raises(InvalidRequest, match="SESSION_AUTH_SECRET"):
        async with open_platform(production, backends={}):
            pass
    assert not production.state_dir.exists()


def test_the_session_secret_is_read_without_a_prefix_and_never_shown() -> None:
    settings = load_settings({"SESSION_AUTH_SECRET": "s" * 40, "SANDBOXER_PRODUCTION": "true"})
    assert settings.session_secret == "s" * 40
    assert "ssss" not in repr(settings) + settings.model_dump_json()

"""A token that stands for a key in one header: where it is taken, what it may do, and how it ends."""

from __future__ import annotations

import asyncio
import hmac
import json
import sqlite3

import httpx
import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.identity.keys import demand_privacy
from sandboxer.kernel.errors import Unauthenticated
from sandboxer.sdk import AsyncSandboxer
from sandboxer.settings import Settings
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client

LOOK = "/v1/sandboxes"


async def issue(served: Served, who: Client | None = None, public_key: str | None = None) -> str:
    asked = who or served.client
    answer = await asked.post(f"/v1/keys/{public_key or asked.credentials.public_key}/bearer")
    assert answer.status_code == 201, answer.text
    return str(answer.json()["bearer_token"])


async def ask(
    served: Served, token: str, path: str = LOOK, method: str = "GET", **more: str
) -> httpx.Response:
    return await served.client.http.request(
        method, path, headers={"Authorization": f"Bearer {token}", **more}
    )


@flow("issueBearer", "endBearer")
async def test_one_header_is_enough_until_it_is_ended(served: Served) -> None:
    who = await served.stranger()
    token = await issue(served, who)
    assert (await ask(served, token)).json() == {"sandboxes": [], "next_cursor": None}
    made = await served.client.http.post(
        "/v1/sandboxes", headers={"Authorization": f"Bearer {token}"}, json={"name": "by-token"}
    )
    assert made.status_code in (201, 402), made.text
    assert (await who.delete(f"/v1/keys/{who.credentials.public_key}/bearer")).status_code == 204
    refused = await ask(served, token)
    assert (refused.status_code, refused.json()["reason"]) == (401, "bad_bearer")
    # The key itself goes on.
    assert (await who.get(LOOK)).status_code == 200


async def test_a_newer_token_a_new_secret_and_a_revoked_key_end_it(served: Served) -> None:
    who = await served.stranger()
    public_key = who.credentials.public_key
    first, second = await issue(served, who), await issue(served, who)
    assert (await ask(served, first)).status_code == 401
    assert (await ask(served, second)).status_code == 200
    await served.client.post(f"/v1/keys/{public_key}/regenerate")
    assert (await ask(served, second)).status_code == 401
    third = await issue(served, public_key=public_key)
    await served.client.post(f"/v1/keys/{public_key}/suspend", {"why": "looking into it"})
    assert (await ask(served, third)).status_code == 401
    await served.client.post(f"/v1/keys/{public_key}/unsuspend")
    assert (await ask(served, third)).status_code == 200
    await served.client.delete(f"/v1/keys/{public_key}")
    assert (await ask(served, third)).status_code == 401


async def test_it_may_what_its_key_may(served: Served) -> None:
    cut = await served.client.post("/v1/keys/delegated", {"name": "child", "scopes": ["sandboxes:read"]})
    token = await issue(served, public_key=cut.json()["public_key"])
    assert (await ask(served, token)).status_code == 200
    assert (await ask(served, token, "/v1/webhooks", "POST")).status_code == 403
    assert (
        await ask(served, token, f"/v1/keys/{cut.json()['public_key']}/bearer", "POST")
    ).status_code == 403


async def test_a_key_that_would_outlive_it_is_cut_only_with_the_secret(served: Served) -> None:
    """Or ending a stolen token would leave the thief with a key."""
    who = await served.stranger()
    token = await issue(served, who)
    wish = {"name": "mine", "scopes": ["sandboxes:read"]}
    stolen = await served.client.http.post(
        "/v1/keys/delegated", headers={"Authorization": f"Bearer {token}"}, json=wish
    )
    assert stolen.json()["reason"] == "second_proof_needed", stolen.text
    assert (await who.post("/v1/keys/delegated", wish)).status_code == 201
    assert len((await who.get("/v1/keys/tree")).json()["children"]) == 1


async def test_the_owners_token_makes_no_key_that_would_outlive_it(served: Served) -> None:
    """Or whoever stole it would hold keys of every account after it was ended."""
    who = await served.stranger("victim")
    token, theirs = await issue(served), f"/v1/keys/{who.credentials.public_key}"
    for path, body in (
        ("/v1/keys", {"account": "victim", "name": "mine"}),
        ("/v1/keys/delegated", {"name": "mine", "scopes": ["sandboxes:read"]}),
        (f"{theirs}/regenerate", None),
        (f"{theirs}/bearer", None),
        (f"/v1/keys/{served.owner.public_key}/bearer", None),
    ):
        stolen = await served.client.http.post(path, headers={"Authorization": f"Bearer {token}"}, json=body)
        assert (stolen.status_code, stolen.json().get("reason")) == (428, "second_proof_needed"), path
    # Nothing was changed, and whoever holds the secret confirms it with that.
    assert (await who.get(LOOK)).status_code == 200
    assert (await ask(served, token)).status_code == 200
    demand = stolen.json()
    proof = hmac.new(served.owner.secret_key.encode(), demand["message"].encode(), "sha256").hexdigest()
    confirmed = await ask(
        served,
        token,
        path,
        "POST",
        **{
            "X-Sudo-Challenge": demand["challenge"],
            "X-Sudo-By": served.owner.public_key,
            "X-Sudo-OTP": proof,
        },
    )
    assert confirmed.status_code == 201, confirmed.text


async def test_nobody_makes_or_ends_the_token_of_another(served: Served) -> None:
    one, other = await served.stranger("one"), await served.stranger("other")
    path = f"/v1/keys/{one.credentials.public_key}/bearer"
    assert (await other.post(path)).status_code == 404
    assert (await other.delete(path)).status_code == 404


async def test_the_secret_that_signs_is_no_token_and_the_token_signs_nothing(served: Served) -> None:
    who = await served.stranger()
    token = await issue(served, who)
    secret, public_key = who.credentials.secret_key, who.credentials.public_key
    for guess in (secret, public_key, "sk_", token[:-1], token.upper(), token + "0", f"sk_{'0' * 52}"):
        assert (await ask(served, guess)).status_code == 401, guess
    as_secret = served.as_(type(who.credentials)(public_key, token))
    assert (await as_secret.get(LOOK)).status_code == 401


async def test_only_a_hash_of_it_is_stored(served: Served) -> None:
    token = await issue(served, await served.stranger())
    with sqlite3.connect(served.state_dir / "sandboxer.db") as database:
        assert token not in "\n".join(database.iterdump())
    told = await served.client.get("/v1/audit?limit=100")
    assert token not in told.text


async def test_beside_anything_else_that_names_a_caller_it_is_refused(served: Served) -> None:
    who = await served.stranger()
    token = await issue(served, who)
    both = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    twice = await served.client.http.get(LOOK, headers=both)
    assert twice.json()["reason"] == "two_callers"
    for name in ("X-Signature", "X-Api-Key", "X-Nonce", "Sign-In-With-X"):
        refused = await ask(served, token, **{name: "0" * 64})
        assert (refused.status_code, refused.json()["reason"]) == (401, "two_callers"), name


async def test_behind_a_proxy_that_nobody_trusts_it_is_refused(served: Served) -> None:
    token = await issue(served, await served.stranger())
    for told in ({"X-Forwarded-For": "198.51.100.7"}, {"X-Forwarded-Proto": "https"}, {"Forwarded": "for=x"}):
        refused = await ask(served, token, **told)
        assert (refused.status_code, refused.json()["reason"]) == (401, "bearer_in_the_open"), told


async def test_an_operator_can_turn_it_off(settings: Settings) -> None:
    off = settings.model_copy(update={"bearer_tokens": False})
    async with serving(off, {"ext.namespaces": Scripted()}) as served:
        refused = await ask(served, await issue(served))
        assert (refused.status_code, refused.json()["reason"]) == (401, "bearer_off")
        # Nor what stands for one at a sandbox.
        head = {"e2b-sandbox-id": "sbx_" + "0" * 26, "x-access-token": "sbt_" + "0" * 26 + "_" + "0" * 64}
        async with httpx.AsyncClient(base_url=served.url) as bare:
            refused = await bare.get("/e2b/envd/health", headers=head)
        assert refused.status_code == 401
        assert "takes no bearer tokens" in refused.text


async def test_a_stream_ends_with_the_token_that_opened_it(served: Served) -> None:
    token, path = await issue(served), f"{await served.sandbox()}/events?follow=true"
    head = {"Authorization": f"Bearer {token}"}
    async with served.client.http.stream("GET", path, headers=head) as stream:
        assert stream.status_code == 200
        await served.client.delete(f"/v1/keys/{served.owner.public_key}/bearer")
        async with asyncio.timeout(20):
            lines = [line async for line in stream.aiter_lines()]
    assert any("unauthenticated" in line for line in lines), lines


async def test_the_client_of_python_sends_it(served: Served) -> None:
    token, path = await issue(served), await served.sandbox()
    async with AsyncSandboxer(url=served.url, api_key=token) as client:
        assert [one.id async for one in client.list()] == [path.rpartition("/")[2]]


@pytest.mark.parametrize(
    ("scheme", "peer", "headers", "trusted"),
    [
        ("https", "198.51.100.7", {}, False),
        ("http", "127.0.0.1", {}, False),
        ("http", "::1", {}, False),
        ("http", None, {}, False),
        ("http", "10.0.0.2", {"x-forwarded-proto": "https", "x-forwarded-for": "198.51.100.7"}, True),
    ],
)
def test_where_nobody_reads_along(
    scheme: str, peer: str | None, headers: dict[str, str], trusted: bool
) -> None:
    demand_privacy(scheme, peer, _raw(headers), is_trusted_proxy=trusted)


@pytest.mark.parametrize(
    ("peer", "headers", "trusted"),
    [
        ("198.51.100.7", {}, False),
        ("10.0.0.2", {"x-forwarded-proto": "https"}, False),
        ("10.0.0.2", {"x-forwarded-proto": "http"}, True),
        ("10.0.0.2", {"x-forwarded-proto": "https, http"}, True),
        # A trusted proxy that says nothing of TLS.
        ("127.0.0.1", {"x-forwarded-for": "198.51.100.7"}, True),
        (None, {"x-forwarded-for": "198.51.100.7"}, False),
        ("what", {}, False),
    ],
)
def test_where_somebody_may_read_along(peer: str | None, headers: dict[str, str], trusted: bool) -> None:
    with pytest.raises(Unauthenticated) as caught:
        demand_privacy("http", peer, _raw(headers), is_trusted_proxy=trusted)
    assert json.dumps(caught.value.facts["reason"]) == '"bearer_in_the_open"'


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]

"""Ending sessions and wallets, what ends with them, and owner's acts that never lack their audit row."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxer.accounts import audit
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.guest import eventually
from tests.support.http.accounts import with_both
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials
from tests.support.http.wallets import key_proof, sign_in, siwx_header, siwx_message
from tests.support.signers import Signer

SHIPPED = Path(__file__).resolve().parents[2] / "profiles" / "agent-dev.yaml"


@flow("endSessions")
async def test_all_sessions_of_an_account_or_of_one_wallet_end_at_once(served: Served) -> None:
    client, first = await with_both(served)
    second, other = await sign_in(served.client.http, "alice"), await sign_in(served.client.http, "bob")
    address = (await client.get("/v1/auth/wallets")).json()["wallets"][0]["address"]
    theirs = (await other.send("GET", "/v1/auth/wallets")).json()["wallets"][0]["address"]
    assert (await client.delete(f"/v1/auth/sessions?address={theirs}")).status_code == 404
    assert (await client.delete(f"/v1/auth/sessions?address={address}")).json() == {"ended": 2}
    for session in (first, second):
        assert (await session.send("GET", "/v1/sandboxes")).status_code == 401
    assert (await other.send("GET", "/v1/sandboxes")).status_code == 200
    again = await sign_in(served.client.http, "alice")
    assert (await again.send("DELETE", "/v1/auth/sessions")).json() == {"ended": 1}
    assert (await again.send("GET", "/v1/sandboxes")).status_code == 401


async def test_a_revoked_wallet_takes_the_keys_it_cut_along_and_leaves_the_accounts_own(
    served: Served,
) -> None:
    client, session = await with_both(served)
    wish = {"name": "child", "scopes": ["account:read"], "slots": 1}
    asked = (await session.send("POST", "/v1/keys/delegated", wish)).json()
    mine = key_proof(asked, client.credentials.public_key, client.credentials.secret_key)
    made = (await session.send("POST", "/v1/keys/delegated", wish, **mine)).json()
    by_wallet = served.as_(Credentials(made["public_key"], made["secret_key"]))
    made = (await client.post("/v1/keys/delegated", wish)).json()
    by_key = served.as_(Credentials(made["public_key"], made["secret_key"]))
    assert (await by_wallet.get("/v1/accounts/me")).status_code == 200
    address = (await client.get("/v1/auth/wallets")).json()["wallets"][0]["address"]
    assert (await client.delete(f"/v1/auth/wallets/{address}")).status_code == 204
    assert (await by_wallet.get("/v1/accounts/me")).status_code in (401, 403)
    assert (await by_key.get("/v1/accounts/me")).status_code == 200
    assert (await client.get("/v1/accounts/me")).status_code == 200


@pytest.mark.parametrize("whose", ["the owner's own", "a tenant's"])
async def test_a_delegated_key_that_the_owner_ends_takes_what_it_made_along(
    served: Served, whose: str
) -> None:
    parent = served.client if whose == "the owner's own" else await served.stranger("team")
    wish = {"name": "child", "scopes": ["sandboxes:create", "sandboxes:read"], "slots": 1}
    made = (await parent.post("/v1/keys/delegated", wish)).json()
    child = served.as_(Credentials(made["public_key"], made["secret_key"]))
    sandbox = (await child.post("/v1/sandboxes", {"profile": "profile.agent-dev"})).json()["id"]
    for _ in range(2):  # ended already is success
        assert (await served.client.delete(f"/v1/keys/{made['public_key']}")).status_code == 204
    assert (await child.get("/v1/sandboxes")).status_code == 401

    async def is_gone() -> bool:
        return (await served.client.get(f"/v1/sandboxes/{sandbox}")).json()["state"] == "destroyed"

    await eventually(is_gone)
    below = (await parent.get("/v1/keys/tree")).json()["children"]
    assert all(node["key"]["state"] in ("ending", "ended") for node in below)


async def test_no_act_of_the_owner_on_keys_stands_without_its_row(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit log cannot be written: then nothing happens either."""
    team = await served.stranger("team")
    public_key = team.credentials.public_key
    acts = (
        ("POST", "/v1/keys", {"name": "k", "account": "x"}),
        ("POST", f"/v1/keys/{public_key}/suspend", {"why": "x"}),
        ("PUT", f"/v1/keys/{public_key}/expiry", {"expires_at": "2030-01-01T00:00:00Z"}),
        ("POST", f"/v1/keys/{public_key}/regenerate", None),
        ("DELETE", f"/v1/keys/{public_key}", None),
    )
    before = (await served.client.get("/v1/keys")).json()
    rows = len((await served.client.get("/v1/audit")).json()["entries"])

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(audit, "append", full)
        for method, path, body in acts:
            assert (await served.client.send(method, path, body=body)).status_code == 500, path
    assert (await served.client.get("/v1/keys")).json() == before
    assert (await team.get("/v1/sandboxes")).status_code == 200
    for method, path, body in acts:
        assert (await served.client.send(method, path, body=body)).status_code < 300, path
    assert len((await served.client.get("/v1/audit")).json()["entries"]) == rows + len(acts)


@pytest.mark.parametrize(
    ("bent", "reason"),
    [
        ({"domain": "evil.example"}, "other_domain"),
        ({"uri": "https://evil.example/"}, "other_domain"),
        ({"uri": "ftp://{domain}/"}, "other_domain"),
        ({"uri": "http://{domain}@evil.example/"}, "other_domain"),
        ({"resources": ("https://evil.example/v1",)}, "other_resource"),
        ({"resources": ("http://{domain}/v1/accounts/me", "https://evil.example/")}, "other_resource"),
    ],
)
async def test_a_sign_in_written_for_someone_else_opens_nothing(
    served: Served, bent: dict[str, object], reason: str
) -> None:
    http, signer = served.client.http, Signer.named("alice")
    message = await siwx_message(http, signer)
    filled = {name: _filled(value, message.domain) for name, value in bent.items()}
    other = replace(message, **filled)
    body = {"message": other.text(), "signature": signer.sign_evm(other.text())}
    refused = await http.post("/v1/auth/siwx", json=body)
    assert (refused.status_code, refused.json()["reason"]) == (401, reason), refused.text


async def test_a_sign_in_for_one_resource_does_not_serve_another(served: Served) -> None:
    http, signer = served.client.http, Signer.named("alice")
    for path, status in (("/v1/accounts/me", 200), ("/v1/sandboxes", 401)):
        message = await siwx_message(http, signer)
        uri = f"{message.uri.rstrip('/')}/v1/accounts"
        narrow = replace(message, resources=(uri,))
        header = siwx_header(narrow, signer.sign_evm(narrow.text()), resources=[uri])
        assert (await http.get(path, headers={"sign-in-with-x": header})).status_code == status, path


def _filled(value: object, domain: str) -> Any:
    if isinstance(value, tuple):
        return tuple(str(one).replace("{domain}", domain) for one in value)
    return str(value).replace("{domain}", domain)


@pytest.fixture
async def picky(settings: Settings, tmp_path: Path) -> AsyncIterator[Served]:
    """Two profiles, one of which asks for genesis; a registry that nobody answers at."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    text = SHIPPED.read_text()
    (folder / "open.yaml").write_text(text)
    gated = text.replace("id: profile.agent-dev", "id: profile.gated")
    (folder / "gated.yaml").write_text(gated + "identity:\n  genesis: required\n")
    chosen = settings.model_copy(
        update={"profiles_dir": folder, "genesis_registry_url": "http://127.0.0.1:9", "charging": False}
    )
    async with serving(chosen, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


async def test_a_profile_asks_for_genesis_at_create_and_at_extend(picky: Served) -> None:
    team = await picky.stranger("team")
    shown = {p["id"]: p["genesis_required"] for p in (await team.get("/v1/profiles")).json()["profiles"]}
    assert shown == {"profile.agent-dev": False, "profile.gated": True}
    refused = await team.post("/v1/sandboxes", {"profile": "profile.gated"})
    assert (refused.status_code, refused.json()["reason"]) == (403, "genesis_needed")
    made = await team.post("/v1/sandboxes", {"profile": "profile.agent-dev"})
    assert made.status_code == 201
    more = {"duration": "1m"}
    extended = await team.send("PATCH", f"/v1/sandboxes/{made.json()['id']}/ttl", body=more)
    assert extended.status_code == 200, extended.text
    # The owner made one for the team's sake; extending it is the caller's matter.
    mine = await picky.client.post("/v1/sandboxes", {"profile": "profile.gated"})
    assert mine.status_code == 201
    path = f"/v1/sandboxes/{mine.json()['id']}/ttl"
    assert (await picky.client.send("PATCH", path, body=more)).status_code == 200
    assert (await team.send("PATCH", path, body=more)).status_code == 404


async def test_a_profile_that_asks_for_genesis_without_a_registry_serves_nobody(
    settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "gated.yaml").write_text(SHIPPED.read_text() + "identity:\n  genesis: required\n")
    chosen = settings.model_copy(update={"profiles_dir": folder, "charging": False})
    async with serving(chosen, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        refused = await (await served.stranger("team")).post("/v1/sandboxes", {})
        assert (refused.status_code, refused.json()["code"]) == (422, "not_available")

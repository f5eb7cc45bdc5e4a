"""Accounts with sats, and keys cut for their children."""

from __future__ import annotations

from tests.support.http.served import Served
from tests.support.http.signed import Client, Credentials
from tests.support.http.wallets import Session, sign_in

SCOPES = ["sandboxes:read", "sandboxes:create", "account:read", "keys:delegate"]


async def funded(served: Served, account: str, sats: int = 10_000) -> Client:
    client = await served.stranger(account)
    body = {"sats": sats, "id": f"first-{account}", "reason": "welcome"}
    answer = await served.client.post(f"/v1/accounts/{account}/adjust", body)
    assert answer.status_code == 200, answer.text
    return client


async def cut(served: Served, parent: Client, **wish: object) -> Client:
    answer = await parent.post("/v1/keys/delegated", {"name": "child", "scopes": SCOPES, **wish})
    assert answer.status_code == 201, answer.text
    return served.as_(Credentials(answer.json()["public_key"], answer.json()["secret_key"]))


async def with_both(served: Served, label: str = "alice") -> tuple[Client, Session]:
    """An account with a wallet and an API key."""
    session = await sign_in(served.client.http, label)
    made = await session.confirmed("POST", "/v1/keys", {"name": "mine"})
    assert made.status_code == 201, made.text
    return served.as_(Credentials(made.json()["public_key"], made.json()["secret_key"])), session

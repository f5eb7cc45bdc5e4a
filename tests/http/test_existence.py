"""Nobody learns which ids exist: somebody else's thing is answered like one that never was.

Every route with an id is asked twice by each kind of stranger, once for a thing of Alice's and once for an id
that nobody has. The list is the platform's own, so a new route is asked too.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import httpx
import pytest

from sandboxer.edges.http.app import all_bindings
from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.http.served import Served
from tests.support.http.signed import Client, Credentials
from tests.support.http.x402 import agent, signed, wallet
from tests.support.http.x402 import served as shop

__all__ = ["evm", "shop", "wallet"]

# What a route needs to get as far as to look for the thing; most need nothing.
BODIES: dict[str, dict[str, Any]] = {
    "exec": {"argv": ["true"]},
    "runCell": {"code": "1"},
    "extendTtl": {"duration": "1m"},
    "startProcess": {"argv": ["true"]},
    "makeFolder": {"path": "/x"},
    "moveFile": {"from": "/a", "to": "/b"},
    "removeFiles": {"paths": ["/a"]},
    "boostSandbox": {"vcpus": 2},
    "grantImage": {"account": "bob"},
    "transferImage": {"account": "bob"},
    "topUpKey": {"sats": 1, "id": "x"},
}
# By its name in a path: of a thing that Alice has; made below.
_UNKNOWN = {
    "sandbox_id": "sbx_" + "0" * 26,
    "session_id": "ssn_" + "0" * 26,
    "snapshot_id": "snp_" + "0" * 26,
    "image_id": "img_" + "0" * 26,
    "volume": "vol_" + "0" * 26,
    "service": "svc_" + "0" * 26,
    "job_id": "job_" + "0" * 26,
    "webhook_id": "whk_" + "0" * 26,
    "key_id": "ssk_" + "0" * 26,
    "public_key": "sbx-pk-" + "0" * 26,
    "account_id": "nobody",
}
# These tell of a thing to whoever knows its id, which nobody can guess; or name no one's thing.
_FOR_ANYBODY = re.compile(r"/v1/(payments|invoices|gift-cards|languages|refunds|secrets|auth)/.*")
_SCOPES = [
    "sandboxes:read", "sandboxes:create", "sandboxes:manage", "sandboxes:destroy", "exec", "files:read",
    "files:write", "account:read", "account:manage", "keys:delegate",
]  # fmt: skip


async def things_of(served: Served, alice: Client) -> dict[str, str]:
    sandbox = (await alice.post("/v1/sandboxes", {})).json()["id"]
    snapshot = (await alice.post(f"/v1/sandboxes/{sandbox}/snapshots", {})).json()["id"]
    image = (await alice.post("/v1/images", {"snapshot": snapshot, "name": "i"})).json()["id"]
    volume = (await alice.post("/v1/volumes", {"name": "v", "size_mb": 16})).json()["id"]
    hook = await alice.post("/v1/webhooks", {"url": "https://hooks.example/x", "kinds": ["sandbox.*"]})
    child = await alice.post("/v1/keys/delegated", {"name": "c", "scopes": ["exec"]})
    found = {
        "sandbox_id": sandbox,
        "snapshot_id": snapshot,
        "image_id": image,
        "volume": volume,
        "public_key": child.json()["public_key"],
        "account_id": "alice",
    }
    if hook.status_code == 201:
        found["webhook_id"] = hook.json()["id"]
    return found


def outcome(answer: httpx.Response, id: str) -> tuple[int, str]:
    """What the answer says, without the id that was asked for and without what differs every time."""
    text = answer.text.replace(id, "<id>")
    text = re.sub(r"req_[0-9a-z]+", "<request>", text)
    return answer.status_code, re.sub(r'"(nonce|issuedAt|expirationTime|expiresAt|offer)": ?[^,}]+', "", text)


async def send(client: Client | None, served: Served, method: str, path: str, body: Any) -> httpx.Response:
    if client is None:
        return await served.client.http.request(method, path, json=body)
    content = {} if body is None else {"body": body}
    return await client.send(method, path, **content)


@pytest.mark.parametrize("who", ["nobody", "another account", "a delegated key", "a child of the owner"])
async def test_a_foreign_thing_is_answered_like_one_that_never_was(served: Served, who: str) -> None:
    alice, bob = await served.stranger("alice"), await served.stranger("bob")
    mine = await things_of(served, alice)
    asking: Client | None = None
    if who == "another account":
        asking = bob
    elif who != "nobody":
        parent = bob if who == "a delegated key" else served.client
        made = (await parent.post("/v1/keys/delegated", {"name": "c", "scopes": _SCOPES})).json()
        asking = served.as_(Credentials(made["public_key"], made["secret_key"]))
    different, asked = [], 0
    for operation in (binding.operation for binding in all_bindings()):
        path, method = operation.path, operation.method
        names = re.findall(r"{(\w+)}", path)
        if not names or names[0] not in mine or _FOR_ANYBODY.fullmatch(path):
            continue
        body = BODIES.get(operation.id, {} if method in ("POST", "PUT", "PATCH") else None)
        answers = []
        for ids in (mine, _UNKNOWN):
            filled = path.replace(f"{{{names[0]}}}", ids[names[0]])
            filled = re.sub(r"{\w+}", "x1", filled)
            if path.endswith(("/content", "/stat", "/files", "/tar", "/watch")):
                filled += "?path=/x"
            answers.append(outcome(await send(asking, served, method, filled, body), ids[names[0]]))
        asked += 1
        if answers[0] != answers[1]:
            different.append((method, path, *answers))
    assert asked > 60
    assert not different, json.dumps(different, indent=1)


async def test_naming_somebodys_wallet_does_not_tell_which_sandboxes_it_has(
    shop: Served, evm: Anvil, wallet: str
) -> None:
    """The payer named in a payment was believed before the payment was verified: 402 or 404."""
    async with agent(shop, wallet) as http:
        mine = (await http.post("/v1/sandboxes", json={})).json()["id"]
    copied = await signed(shop, wallet, "/v1/topups", {"sats": 2000})
    assert (await shop.client.http.post("/v1/topups", json={"sats": 2000}, headers=copied)).status_code == 201
    forged = _renamed(await signed(shop, evm.new_wallet(0), "/v1/topups", {"sats": 2000}), copied)
    for head in (copied, forged):
        answers = []
        for id in (mine, "sbx_" + "0" * 26):
            path = f"/v1/sandboxes/{id}/ttl"
            answer = await shop.client.http.patch(path, json={"duration": "1m"}, headers=head)
            answers.append(outcome(answer, id))
        assert answers[0][0] == answers[1][0], answers
        assert answers[0][0] in (402, 409)
        reasons = [re.findall(r'"reason": "([^"]*)"', text) for _, text in answers]
        assert reasons[0] == reasons[1]


def _renamed(head: dict[str, str], victim: dict[str, str]) -> dict[str, str]:
    """A payment that somebody signed, with the payer of another."""

    def read(one: dict[str, str]) -> Any:
        return json.loads(base64.b64decode(one["payment-signature"]))

    mine, theirs = read(head), read(victim)
    mine["payload"]["authorization"]["from"] = theirs["payload"]["authorization"]["from"]
    return {"payment-signature": base64.b64encode(json.dumps(mine).encode()).decode()}

"""Access and secrets of the operator API: a child agent gets credentials and a shell, and loses both.

What shadow clones of the paper are given by hand (credentials, SSH, git) is provisioned, injected, wiped and
revoked over HTTP here, on real walls, with the stock ssh.
"""

from __future__ import annotations

import asyncio

from tests.support.http.signed import Client, Credentials
from tests.support.ssh import Gated, gated  # noqa: F401


async def test_a_child_gets_credentials_and_a_shell_and_loses_both(gated: Gated) -> None:
    served = gated.served
    parent = await served.stranger("parent")
    credit = {"sats": 10**6, "id": "flow", "reason": "what flow 3 paid for"}
    assert (await served.client.post("/v1/accounts/parent/adjust", credit)).status_code < 300
    child = await _cut(gated, parent, ["sandboxes:create", "sandboxes:read", "exec"])
    made = await child.post("/v1/sandboxes", {"resources": {"disk_mb": 64}})
    assert made.status_code == 201, made.text
    path = f"/v1/sandboxes/{made.json()['id']}"

    # A child keeps no secrets of its account without the scope, but may give its sandbox some.
    kept = await child.send("PUT", "/v1/secrets/GIT_TOKEN", body={"value": "t0p"})
    assert kept.status_code == 403
    body = {"values": {"GIT_TOKEN": "t0p-s3cret"}, "files": True}
    given = await child.send("PUT", f"{path}/secrets", body=body)
    assert given.status_code == 200, given.text
    assert (await parent.get(f"{path}/secrets")).status_code == 404

    key = gated.new_key()
    await gated.add(key, child, sandbox_id=made.json()["id"], ttl="1h")
    said = await gated.ssh(key, path, "echo $GIT_TOKEN; cat /run/secrets/GIT_TOKEN")
    assert said.out == b"t0p-s3cret\nt0p-s3cret", said
    held = await gated.started(key, path, "echo up; sleep 1000")
    assert held.stdout is not None
    assert await held.stdout.readline() == b"up\n"

    wiped = (await child.delete(f"{path}/secrets")).json()
    assert wiped["wiped"] == ["GIT_TOKEN"]
    # The shell that was open before may still have it, and it is said so.
    assert len(wiped["may_still_hold"]) == 1
    assert (await gated.ssh(key, path, "echo $GIT_TOKEN; ls /run/secrets")).out == b"\n"

    assert (await parent.delete(f"/v1/keys/{child.credentials.public_key}")).status_code < 300
    async with asyncio.timeout(5):
        assert await held.wait() == 255
    assert (await gated.ssh(key, path, "true")).code == 255


async def _cut(gated: Gated, parent: Client, scopes: list[str]) -> Client:
    wish = {"name": "child", "scopes": scopes, "budget_sats": 10_000}
    answer = await parent.post("/v1/keys/delegated", wish)
    assert answer.status_code == 201, answer.text
    return gated.served.as_(Credentials(answer.json()["public_key"], answer.json()["secret_key"]))

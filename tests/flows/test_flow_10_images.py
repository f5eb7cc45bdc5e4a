"""Flow 10: publish an environment, share it, and let others start from it."""

from __future__ import annotations

import asyncio
import subprocess

from tests.support.flows import (
    Charging,
    real,  # noqa: F401
    sh_as,
)
from tests.support.http.served import Served


async def test_an_agent_publishes_an_environment_and_others_start_from_it(real: Served) -> None:
    alice, bob = await real.stranger("alice"), await real.stranger("bob")
    made = await alice.post("/v1/sandboxes", {"profile": "profile.agent-dev", "resources": {"disk_mb": 64}})
    assert made.status_code == 201, made.text
    sandbox = made.json()["id"]
    script = (
        "mkdir -p /opt/tool && echo 'print(42)' > /opt/tool/run.py && rm /etc/debian_version"
        " && mkdir -p /root/.ssh && echo key > /root/.ssh/authorized_keys && echo ls > /root/.bash_history"
    )
    assert (await sh_as(alice, sandbox, script)) == ""

    published = await alice.post("/v1/images", {"sandbox": sandbox, "name": "tool"})
    assert published.status_code == 201, published.text
    image = published.json()
    assert (image["state"], image["visibility"], image["account"]) == ("kept", "private", "alice")
    assert image["digest"].startswith("sha256:")
    assert image["findings_count"] == 0
    assert {"/root/.ssh/authorized_keys", "/root/.bash_history", "/etc/machine-id"} <= set(image["stripped"])
    path = f"/v1/images/{image['id']}"

    # It outlives its source, and is nobody else's business.
    assert (await alice.delete(f"/v1/sandboxes/{sandbox}")).status_code == 200
    assert (await bob.get(path)).status_code == 404
    assert (await bob.post("/v1/sandboxes", {"image": image["id"]})).status_code == 404

    # Spawned: new machines with the same files.
    spawned = await alice.post(f"{path}/spawn", {"count": 2})
    assert spawned.status_code == 201, spawned.text
    first, second = (each["id"] for each in spawned.json()["sandboxes"])
    probe = "python3 /opt/tool/run.py; test -e /etc/debian_version || echo removed; ls -A /root/.ssh"
    assert await sh_as(alice, first, probe) == "42\nremoved\n"
    names = {await sh_as(alice, each, "cat /etc/machine-id") for each in (first, second)}
    assert len(names) == 2

    # Granted, and taken back.
    assert (await alice.post(f"{path}/grants", {"account": "bob"})).json() == {"accounts": ["bob"]}
    shared = (await bob.get("/v1/images?filter=shared")).json()["published"]
    assert [one["id"] for one in shared] == [image["id"]]
    theirs = await bob.post("/v1/sandboxes", {"image": image["id"], "resources": {"disk_mb": 64}})
    assert theirs.status_code == 201, theirs.text
    assert theirs.json()["image"] == image["id"]
    assert await sh_as(bob, theirs.json()["id"], "python3 /opt/tool/run.py") == "42\n"
    assert (await bob.post(f"{path}/grants", {"account": "carol"})).status_code == 403
    assert (await alice.delete(f"{path}/grants/bob")).json() == {"accounts": []}
    assert (await bob.get(path)).status_code == 404

    # Public: everyone's to list, to clone, and to start from.
    assert (await alice.send("PATCH", path, body={"visibility": "public"})).json()["visibility"] == "public"
    assert image["id"] in [one["id"] for one in (await bob.get("/v1/images")).json()["published"]]
    cloned = await bob.post(f"{path}/clone", {"name": "mine"})
    assert cloned.status_code == 201, cloned.text
    assert (cloned.json()["digest"], cloned.json()["account"]) == (image["digest"], "bob")
    assert (await bob.delete(path)).status_code == 403

    # Checked whole, removed; what came from it stays.
    assert (await alice.post(f"{path}/verify")).status_code == 200
    assert (await alice.delete(path)).json()["state"] == "dropped"
    assert (await alice.post(f"{path}/spawn", {})).status_code == 409
    again = await bob.post(f"/v1/images/{cloned.json()['id']}/spawn", {"resources": {"disk_mb": 64}})
    assert await sh_as(bob, again.json()["sandboxes"][0]["id"], "python3 /opt/tool/run.py") == "42\n"
    assert await sh_as(alice, first, "python3 /opt/tool/run.py") == "42\n"


async def test_nothing_with_secrets_becomes_public_and_nothing_altered_is_used(real: Served) -> None:
    alice, bob = await real.stranger("alice"), await real.stranger("bob")
    wanted = {"profile": "profile.agent-dev", "resources": {"disk_mb": 64}}
    sandbox = (await alice.post("/v1/sandboxes", wanted)).json()["id"]
    secret = "ghp_" + "a1B2" * 9
    await sh_as(
        alice, sandbox, f"mkdir -p /srv/app; echo 'T={secret}' > /srv/app/conf; echo x > /srv/app/.env"
    )

    # Refused with names and kinds, never a value; then without those files.
    body = {"sandbox": sandbox, "name": "leaky"}
    refused = await alice.post("/v1/images", {**body, "visibility": "public"})
    assert (refused.status_code, refused.json()["reason"]) == (409, "secrets_found")
    found = {(one["path"], one["kind"]) for one in refused.json()["findings"]}
    assert {("/srv/app/conf", "github_token"), ("/srv/app/.env", "env_file")} <= found
    assert secret not in refused.text
    kept = (await alice.post("/v1/images", body)).json()
    assert (kept["visibility"], kept["findings_count"] >= 2) == ("private", True)
    for path, change in (("", {"visibility": "unlisted"}), ("/grants", {"account": "bob"})):
        method = "POST" if path else "PATCH"
        answer = await alice.send(method, f"/v1/images/{kept['id']}{path}", body=change)
        assert (answer.status_code, answer.json()["reason"]) == (409, "secrets_found")
    clean = await alice.post("/v1/images", {**body, "visibility": "public", "clean": True})
    assert clean.status_code == 201, clean.text
    image = clean.json()
    assert {"/srv/app/conf", "/srv/app/.env"} <= set(image["stripped"])
    theirs = await bob.post(f"/v1/images/{image['id']}/spawn", {"resources": {"disk_mb": 64}})
    assert await sh_as(bob, theirs.json()["sandboxes"][0]["id"], "ls -A /srv/app") == ""

    # Handed over by both sides.
    path = f"/v1/images/{image['id']}"
    assert (await alice.post(f"{path}/transfer", {"account": "bob"})).json()["offered_to"] == "bob"
    assert (await bob.post(f"{path}/accept")).json()["account"] == "bob"
    assert (await alice.delete(path)).status_code == 403

    # Altered on the host: found out at once.
    upper = real.state_dir / "pool" / image["id"] / "disk" / "upper"
    words = ["btrfs", "property", "set", "-t", "s", str(upper.parent), "ro", "false"]
    await asyncio.to_thread(subprocess.run, words, check=True)
    (upper / "srv/app/evil").write_text("evil")
    spawned = await bob.post(f"{path}/spawn", {})
    assert (spawned.status_code, spawned.json()["reason"]) == (409, "altered")
    assert (await bob.post("/v1/sandboxes", {"image": image["id"]})).status_code == 409
    assert (await bob.get(f"{path}/export")).status_code == 409
    assert (await bob.delete(path)).json()["state"] == "dropped"


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(10)

"""Flow 14 of the paper: the algorithm belongs to no client. One small loop, by each, with the same results.

The shipped checks do it by the standard library, bearer tokens, both clients and from inside; here are those
that are not ours at all: curl, and E2B's own SDK, unmodified.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from e2b import CommandExitException, Sandbox
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of
from tests.support.e2b import pointed_at
from tests.support.flows import Charging

SCRIPT = "echo hello $((6 * 7)); echo kept > /workspace/kept; echo bad >&2; exit 3"
WANTED = {"ran": ("hello 42\n", "bad\n", 3), "fork": "kept\n", "left": 0}


def token_of(charging: Charging) -> str:
    with Sandboxer(owner_file=charging.up.owner_file, url=charging.up.url) as owner:
        made = owner.keys.create("framework", "agent")
        return owner.keys.issue_bearer(made.public_key).bearer_token


def left_of(charging: Charging) -> int:
    with Sandboxer(owner_file=charging.up.owner_file, url=charging.up.url) as owner:
        return sum(1 for one in owner.list() if one.state not in ("destroying", "destroyed"))


def test_curl_with_one_header_does_the_same(charging: Charging) -> None:
    token = token_of(charging)

    def ask(method: str, path: str, body: object = None) -> Any:
        words = ["curl", "-sS", "-f", "-X", method, f"{charging.up.url}{path}"]
        words += ["-H", f"Authorization: Bearer {token}", "-H", "Content-Type: application/json"]
        words += ["-d", json.dumps(body)] if body is not None else []
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert ask("GET", "/.well-known/sandboxer.json")["name"] == "sandboxer"
    path = f"/v1/sandboxes/{ask('POST', '/v1/sandboxes', {'ttl': '10m'})['id']}"
    ran = ask("POST", f"{path}/exec", {"command": SCRIPT})
    kept = ask("POST", f"{path}/snapshots", {})["id"]
    forked = f"/v1/sandboxes/{ask('POST', '/v1/sandboxes', {'ttl': '10m', 'snapshot': kept})['id']}"
    read = ask("POST", f"{forked}/exec", {"command": "cat /workspace/kept"})
    for each in (forked, path, f"/v1/snapshots/{kept}"):
        ask("DELETE", each)
    seen = {"ran": (ran["stdout"], ran["stderr"], ran["exit_code"]), "fork": read["stdout"]}
    assert {**seen, "left": left_of(charging)} == WANTED


def test_the_sdk_of_e2b_does_the_same_and_knows_nothing_of_us(charging: Charging) -> None:
    with pointed_at(charging.up, api_key_of(token_of(charging))):
        with Sandbox.create(timeout=300, allow_internet_access=False) as made:
            with pytest.raises(CommandExitException) as ended:
                made.commands.run(SCRIPT, user="root")
            ran = ended.value
            kept = made.create_snapshot()
            with Sandbox.create(kept.snapshot_id, timeout=300, allow_internet_access=False) as fork:
                read = fork.commands.run("cat /workspace/kept", user="root").stdout
        Sandbox.delete_snapshot(kept.snapshot_id)
    seen = {"ran": (ran.stdout, ran.stderr, ran.exit_code), "fork": read}
    assert {**seen, "left": left_of(charging)} == WANTED


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(14)

"""A caller somewhere else, with a bearer token and stock programs: every address that `reachability` names
leads there, and the tour of `make smoke-remote` goes around. Real walls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandboxer.sdk import Sandboxer
from tests.observe.webhooks.receivers import receiver
from tests.support.http.served import eventually
from tests.support.platforms import ROOT, Up, free_port, real_platform, why_not_real
from tests.support.ssh import run

SERVE = "cd /tmp; echo by tunnel > index.html; (setsid python3 -m http.server 3000 >/dev/null 2>&1 &)"
LISTENS = "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))'; do :; done"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    own = {"SANDBOXER_SSH_LISTEN": f"127.0.0.1:{free_port()}", "SANDBOXER_WEBHOOK_ALLOW_PRIVATE": "true"}
    with real_platform(tmp_path_factory.mktemp("remote") / "state", settings=own) as up:
        yield up


@pytest.fixture(scope="module")
def token(remote: Up) -> str:
    with Sandboxer(owner_file=remote.owner_file, url=remote.url) as owner:
        owner.operator.create_account(id="team", reason="a caller somewhere else")
        key = owner.keys.create("remote", "team")
        return owner.keys.issue_bearer(key.public_key).bearer_token


async def test_every_way_that_is_named_leads_there(remote: Up, token: str, tmp_path: Path) -> None:
    with Sandboxer(url=remote.url, api_key=token) as client, client.create(ttl="10m") as sandbox:
        ways = sandbox.reachability()
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(headers=headers, follow_redirects=True) as http, receiver() as there:

            async def post(url: str | None, /, **body: Any) -> dict[str, Any]:
                answer = await http.post(str(url), json=body)
                assert answer.status_code == 201, answer.text
                found: dict[str, Any] = answer.json()
                return found

            made = await run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key", folder=tmp_path)
            assert made.code == 0, made.err
            await post(ways.identity, public_key=(tmp_path / "key.pub").read_text().strip())
            quiet = ("-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=known")
            look = f"cd {ways.remote_dir} && pwd"
            said = await run("ssh", "-i", "key", *quiet, str(ways.ssh), look, folder=tmp_path)
            assert said.out == b"/workspace\n", said.err
            assert (await http.get(ways.poll)).json()["state"] in ("ready", "active")
            assert "event: sandbox.ready" in (await http.get(f"{ways.events}?follow=false")).text
            sandbox.exec(f"{SERVE}; {LISTENS}", timeout_s=20)
            preview = await post(ways.tunnel, port=3000)
            shown = await run("curl", "-sSL", "-b", "", preview["url"], folder=tmp_path)
            assert shown.out == b"by tunnel\n", shown.err
            await post(ways.webhook, url=there.url, kinds=["sandbox.*"])
            sandbox.destroy()
            await eventually(lambda: bool(there.got))
            assert json.loads(there.got[0].body)["data"]["subject"] == sandbox.id


def test_the_tour_from_elsewhere_goes_around_and_leaves_nothing(remote: Up, token: str) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SANDBOXER_URL": remote.url}
    environment |= {"SANDBOXER_API_KEY": token, "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [ROOT / "scripts" / "smoke-remote"], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{remote.url} works\n")
    with Sandboxer(url=remote.url, api_key=token) as client:
        assert not list(client.list())

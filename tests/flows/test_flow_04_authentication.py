"""Flow 4 of the paper, HMAC-SHA256: signed with what any machine brings, and nothing of ours."""

from __future__ import annotations

import json
import shutil
import subprocess

import httpx
import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.flows import Charging

# The canonical text, a digest and a signature: nothing of ours, and no Python.
SIGN = r"""
set -eu
method=$1 target=$2 body=${3-}
stamp=$(date +%s) nonce=$(openssl rand -hex 16)
digest=$(printf %s "$body" | openssl dgst -sha256 -r | cut -d' ' -f1)
text="v2:$stamp:$nonce:$method:$target:$digest"
signature=$(printf %s "$text" | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d' ' -f1)
exec curl -s -X "$method" "$URL$target" ${body:+-d "$body"} -H 'Content-Type: application/json' \
  -H "Authorization: Bearer $PUBLIC" -H "X-Timestamp: $stamp" -H "X-Nonce: $nonce" \
  -H "X-Content-SHA256: $digest" -H "X-Signature: $signature"
"""


def signed(charging: Charging, *words: str, secret: str = "") -> dict[str, object]:
    known = charging.key
    given = {"URL": charging.up.url, "PUBLIC": known.public_key, "SECRET": secret or known.secret_key}
    environment = given | {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", SIGN, "sign", *words], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not shutil.which("openssl") or not shutil.which("curl"), reason="no openssl or no curl")
def test_a_shell_with_openssl_and_curl_makes_a_sandbox_and_runs_in_it(charging: Charging) -> None:
    made = signed(charging, "POST", "/v1/sandboxes", '{"ttl":"10m"}')
    path = f"/v1/sandboxes/{made['id']}"
    ran = signed(charging, "POST", f"{path}/exec", '{"command":"echo $((6 * 7))"}')
    assert (ran["stdout"], ran["exit_code"]) == ("42\n", 0)
    refused = signed(charging, "POST", f"{path}/exec", '{"command":"id"}', secret="guessed")
    assert (refused["status"], refused["reason"]) == (401, "bad_signature")
    assert signed(charging, "DELETE", path)["state"] == "destroyed"


def test_the_secret_is_in_no_request_and_no_answer(charging: Charging) -> None:
    seen: list[str] = []
    known = charging.key
    with Sandboxer(url=charging.up.url, public_key=known.public_key, secret_key=known.secret_key) as client:
        hooks = {"request": [lambda sent: seen.append(str(sent.headers))]}
        client._line._http.event_hooks = hooks
        client.account.me()
    assert len(seen) == 1
    assert known.secret_key not in seen[0]
    answer = httpx.get(f"{charging.up.url}/v1/keys", headers=known.head("GET", "/v1/keys"), trust_env=False)
    assert answer.status_code == 200
    assert known.public_key in answer.text
    assert known.secret_key not in answer.text


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(4)

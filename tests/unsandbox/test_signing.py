"""Who a client of unsandbox is: its two ways to sign, its addresses, and what nobody is told."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.unsandbox import API_HOST, PORTAL_HOST, ROOT
from tests.support.platforms import Up
from tests.support.unsandbox import Client, Key


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("by_name", [False, True])
def test_both_ways_to_sign_are_known_by_name_and_below_the_path(
    client: Client, paper: bool, by_name: bool
) -> None:
    signing = replace(client, paper=paper, by_name=by_name)
    seen = signing.ask("POST", "/keys/validate", {"a": 1})
    assert seen["valid"] is True
    assert seen["public_key"] == client.key.public
    first, *_ = signing.ask("GET", "/logs?source=all&lines=3&since=1h")["lines"]
    assert "account.created" in first["line"]


@pytest.mark.parametrize("host", [API_HOST, PORTAL_HOST, f"{API_HOST}:443", API_HOST.upper()])
def test_each_name_that_is_written_into_clients_leads_there(up: Up, host: str) -> None:
    seen = httpx.get(f"{up.url}/health", headers={"host": host}, trust_env=False)
    assert seen.json() == {"status": "ok"}


def test_another_name_leads_to_our_own_api(up: Up) -> None:
    for host in ("evil-unsandbox.com", "unsandbox.com.example.org", "x.api.unsandbox.com"):
        seen = httpx.get(f"{up.url}/health", headers={"host": host}, trust_env=False)
        assert "checks" in seen.json(), host


def test_an_object_without_anything_may_be_signed_as_nothing(client: Client) -> None:
    """The Python client does so; what says something may not."""
    assert client.send("POST", "/keys/validate", b"{}", signed=b"").status_code == 200
    assert client.send("POST", "/keys/validate", b"{}").status_code == 200
    assert client.send("POST", "/keys/validate", b'{"a":1}', signed=b"").status_code == 401
    assert client.send("POST", "/keys/validate", b"", signed=b"{}").status_code == 401
    on_paper = replace(client, paper=True)
    assert on_paper.send("POST", "/keys/validate", b"{}", signed=b"").status_code == 401


def test_a_wrong_signature_and_an_unknown_key_are_refused_in_their_words(client: Client) -> None:
    for key in (
        Key(client.key.public, "sbx-sk-" + "1" * 52),
        Key("unsb-pk-aaaa-bbbb-cccc-dddd", "unsb-sk-a"),
    ):
        refused = replace(client, key=key).send("POST", "/keys/validate")
        assert refused.status_code == 401
        said = refused.json()
        assert said["valid"] is False
        assert said["error"] == said["message"]
        assert said["reason"] in ("bad_signature", "unknown_key")


def test_a_clock_that_is_off_is_told_so(client: Client) -> None:
    refused = client.send("GET", "/jobs", x_timestamp="1000000000")
    assert refused.status_code == 401
    assert "Timestamp" in refused.json()["message"]


def test_a_key_that_signs_version_2_only_is_told_what_it_lacks(up: Up) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        made = owner.keys.create("strict", "unsandbox")
    refused = Client(up, Key(made.public_key, made.secret_key)).send("GET", "/jobs")
    assert refused.json()["reason"] == "v1_not_allowed"


def test_what_was_signed_for_their_path_is_worth_nothing_at_ours(client: Client, up: Up) -> None:
    signed = client.send("GET", "/jobs").request.headers
    names = ("authorization", "x-timestamp", "x-signature")
    for path in ("/v1/jobs", f"{ROOT}/jobs/../v1/jobs"):
        again = httpx.get(f"{up.url}{path}", headers={one: signed[one] for one in names}, trust_env=False)
        assert again.status_code in (401, 404)


def test_what_is_not_there_is_said_in_their_words(client: Client) -> None:
    for method, path in (("GET", "/jobs/job_" + "0" * 26), ("GET", "/nothing"), ("DELETE", "/execute")):
        refused = client.send(method, path)
        assert refused.status_code in (404, 405)
        assert refused.headers["content-type"] == "application/json"
        assert refused.json()["error"]


def test_a_bearer_token_is_a_key_here_too_and_a_childs_scopes_hold(up: Up) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        made = owner.keys.create("parent", "scoped")
        token = owner.keys.issue_bearer(made.public_key).bearer_token
    with Sandboxer(url=up.url, public_key=made.public_key, secret_key=made.secret_key) as parent:
        child = parent.keys.delegate("reader", scopes=["sandboxes:read", "account:manage"])
    with Sandboxer(url=up.url, public_key=child.public_key, secret_key=child.secret_key) as reader:
        childs = reader.keys.issue_bearer(child.public_key).bearer_token

    def ask(bearer: str, method: str, path: str) -> httpx.Response:
        head = {"authorization": f"Bearer {bearer}"}
        body = {"code": "1", "language": "klingon"} if method == "POST" else None
        return httpx.request(method, f"{up.url}{ROOT}{path}", headers=head, json=body, trust_env=False)

    assert ask(token, "GET", "/services").status_code == 200
    assert ask(childs, "GET", "/services").status_code == 200
    for method, path in (
        ("POST", "/execute"),
        ("GET", "/jobs"),
        ("POST", "/sessions"),
        ("POST", "/services"),
    ):
        assert ask(token, method, path).status_code != 403, path
        assert ask(childs, method, path).status_code == 403, path

"""The official client is let in by OAuth: it finds out how, its user allows it, and its key is its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2 as httpx
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from sandboxer.observe.webhooks import carrier
from sandboxer.sdk.errors import AuthenticationFailed
from sandboxer.sdk.sync.client import Sandboxer
from tests.access.egress.world import certified
from tests.support.mcp import ERAS, connected
from tests.support.platforms import Up

BACK = "http://127.0.0.1:33418/callback"


class Documents:
    """A program's own site, which says what the program is."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.asked = 0
        ours = self

        class Site(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ours.asked += 1
                document = {"client_id": ours.url, "client_name": "A host", "redirect_uris": [BACK]}
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_port}/client.json"


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Documents]:
    tls = certified(tmp_path, "localhost")
    trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    # As if the public authorities had signed it.
    monkeypatch.setattr(carrier, "_public_trust", lambda: trust)
    made = Documents(tls)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@dataclass
class Memory:
    """What a client keeps."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client: OAuthClientInformationFull) -> None:
        self.client = client


@dataclass
class Browser:
    """A person's browser: it goes where it is sent, and its person allows the program with a key."""

    up: Up
    answer: Callable[[Sandboxer, str], Any] = lambda owner, code: owner.keys.allow(code)
    seen: list[str] = field(default_factory=list)
    landed: str = ""

    async def go(self, url: str) -> None:
        self.seen.append(url)
        async with httpx.AsyncClient(follow_redirects=False) as web:
            sent = await web.get(url)
            if sent.status_code == 302:
                self.landed = sent.headers["location"]
                return
            assert sent.status_code == 303, sent.text
            page = self.up.url + sent.headers["location"]
            shown = await web.get(page)
            code = re.search(r"key allow ([B-Z]{4}-[B-Z]{4})", shown.text)
            assert code is not None, shown.text
            self.seen.append(shown.text)
            await asyncio.to_thread(self._answer, code.group(1))
            self.landed = (await web.get(page)).headers["location"]

    def _answer(self, code: str) -> None:
        with Sandboxer(owner_file=self.up.owner_file, url=self.up.url) as owner:
            self.answer(owner, code)

    async def come_back(self) -> AuthorizationCodeResult:
        said = {name: values[0] for name, values in parse_qs(urlsplit(self.landed).query).items()}
        return AuthorizationCodeResult(
            code=said.get("code", ""), state=said.get("state"), iss=said.get("iss")
        )


def provider(up: Up, browser: Browser, memory: Memory, **more: Any) -> OAuthClientProvider:
    about = OAuthClientMetadata(
        client_name="A host",
        redirect_uris=[BACK],
        token_endpoint_auth_method="none",  # type: ignore[list-item]
    )
    return OAuthClientProvider(f"{up.url}/mcp", about, memory, browser.go, browser.come_back, **more)


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_is_let_in_and_has_a_key_of_its_own(up: Up, era: str) -> None:
    memory, browser = Memory(), Browser(up, lambda owner, code: owner.keys.allow(code, name=f"host {era}"))
    async with connected(up, era=era, auth=provider(up, browser, memory)) as client:
        assert (await client.list_tools()).tools
        assert memory.tokens is None, "a stranger may look around"
        made = await client.call_tool("createSandbox", {})
        assert not made.is_error, made.content
        me = (await client.call_tool("showMe", {})).structured_content
    assert "code_challenge_method=S256" in browser.seen[0]
    assert "resource=" in browser.seen[0]
    assert "A host" in browser.seen[1]
    assert memory.tokens is not None
    assert memory.tokens.access_token.startswith("sk_")
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        child = next(n for n in owner.keys.tree().children if n.key and n.key.name == f"host {era}")
        assert me["account"]["id"] == child.account
        # It ends as any delegated key does, and with it what it was let in by.
        owner.keys.revoke(child.key.public_key)
    with (
        pytest.raises(AuthenticationFailed),
        Sandboxer(url=up.url, api_key=memory.tokens.access_token) as gone,
    ):
        gone.account.me()


async def test_a_client_that_has_a_document_is_known_by_its_address(up: Up, documents: Documents) -> None:
    memory, browser = Memory(), Browser(up)
    auth = provider(up, browser, memory, client_metadata_url=documents.url)
    async with connected(up, auth=auth) as client:
        assert not (await client.call_tool("showMe", {})).is_error
    assert memory.client is not None
    assert memory.client.client_id == documents.url
    assert documents.asked == 1


async def test_who_refuses_is_heard(up: Up) -> None:
    browser = Browser(up, lambda owner, code: owner.keys.refuse(code))
    async with Asking(up) as asking:
        await browser.go(asking.url())
    assert "error=access_denied" in browser.landed


class Asking:
    """A program that speaks OAuth by hand."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.verifier = "v" * 64
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self.challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        self.client_id = ""

    async def __aenter__(self) -> Asking:
        self.web = httpx.AsyncClient(base_url=self.up.url)
        made = await self.web.post(
            "/oauth/register", json={"client_name": "By hand", "redirect_uris": [BACK]}
        )
        assert made.status_code == 201, made.text
        self.client_id = made.json()["client_id"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.web.aclose()

    def url(self, **other: str) -> str:
        said = {
            "client_id": self.client_id,
            "redirect_uri": BACK,
            "response_type": "code",
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.up.url}/mcp",
            "state": "s",
            **other,
        }
        return f"{self.up.url}/oauth/authorize?{urlencode(said)}"

    async def code(self) -> str:
        browser = Browser(self.up)
        await browser.go(self.url())
        return (await browser.come_back()).code

    async def token(self, code: str, **other: str) -> httpx.Response:
        said = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.client_id,
            "redirect_uri": BACK,
            "code_verifier": self.verifier,
            "resource": f"{self.up.url}/mcp",
            **other,
        }
        return await self.web.post("/oauth/token", data=said)


async def test_a_code_is_used_once_by_who_asked_for_it(up: Up) -> None:
    async with Asking(up) as asking:
        for other, error in (
            ({"code_verifier": "w" * 64}, "invalid_grant"),
            ({"client_id": "dcr.other"}, "invalid_grant"),
            ({"redirect_uri": BACK + "2"}, "invalid_grant"),
            ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ):
            code = await asking.code()
            assert (await asking.token(code, **other)).json()["error"] == error
            # Whoever tried has used it up.
            assert (await asking.token(code)).json()["error"] == "invalid_grant"
        code = await asking.code()
        given = await asking.token(code)
        assert given.status_code == 200, given.text
        assert given.json()["token_type"] == "Bearer"
        assert 0 < given.json()["expires_in"] <= 30 * 86400
        assert (await asking.token(code)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("end", ["revoke", "suspend", "regenerate"])
async def test_what_a_key_allowed_is_not_given_once_that_has_ended(up: Up, end: str) -> None:
    def allow(owner: Sandboxer, code: str) -> None:
        made = owner.keys.create("taken", account=f"taken-{end}")
        with Sandboxer(url=up.url, public_key=made.public_key, secret_key=made.secret_key) as taken:
            taken.keys.allow(code)
        how = {"why": "it was taken"} if end == "suspend" else {}
        getattr(owner.keys, end)(made.public_key, **how)

    async with Asking(up) as asking:
        browser = Browser(up, allow)
        await browser.go(asking.url())
        given = await asking.token((await browser.come_back()).code)
        assert (given.status_code, given.json()["error"]) == (400, "invalid_grant")


async def test_a_browser_is_sent_nowhere_but_to_the_client(up: Up) -> None:
    async with Asking(up) as asking:
        for other in (
            {"redirect_uri": "https://evil.example/callback"},
            {"redirect_uri": "javascript:alert(1)"},
            {"redirect_uri": "http://127.0.0.1.evil.example:33418/callback"},
            {"client_id": "dcr.AAAA"},
            {"client_id": "http://127.0.0.1:1/client"},
        ):
            answer = await asking.web.get(asking.url(**other))
            assert answer.status_code == 422, (other, answer.text)
            assert "location" not in answer.headers
        # Any port of the user's own machine is the client's.
        moved = {"redirect_uri": "http://127.0.0.1:5/callback"}
        assert (await asking.web.get(asking.url(**moved))).status_code == 303


async def test_what_a_client_asks_wrongly_is_told_to_the_client(up: Up) -> None:
    async with Asking(up) as asking:
        for other, error in (
            ({"code_challenge_method": "plain"}, "invalid_request"),
            ({"response_type": "token"}, "unsupported_response_type"),
            ({"resource": "https://elsewhere.example"}, "invalid_target"),
            ({"scope": "everything"}, "invalid_scope"),
        ):
            landed = (await asking.web.get(asking.url(**other))).headers["location"]
            assert landed.startswith(BACK)
            assert f"error={error}" in landed
            assert "state=s" in landed


async def test_a_client_ends_its_own_token(up: Up) -> None:
    async with Asking(up) as asking:
        token = (await asking.token(await asking.code())).json()["access_token"]
        head = {"authorization": f"Bearer {token}"}
        assert (await asking.web.get("/v1/accounts/me", headers=head)).status_code == 200
        assert (await asking.web.post("/oauth/revoke", data={"token": token})).status_code == 200
        assert (await asking.web.get("/v1/accounts/me", headers=head)).status_code == 401


async def test_who_is_refused_is_told_where_to_become_known(up: Up) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "showMe"}}
    async with httpx.AsyncClient(base_url=up.url) as web:
        for head in ({}, {"authorization": "Bearer sk_" + "0" * 52}):
            refused = await web.post("/mcp", json=call, headers=head)
            assert refused.status_code == 401
            where = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
            assert where is not None
            about = (await web.get(where.group(1))).json()
            assert about["resource"] == f"{up.url}/mcp"
            server = (await web.get("/.well-known/oauth-authorization-server")).json()
            assert about["authorization_servers"] == [server["issuer"]]
            assert server["client_id_metadata_document_supported"] is True

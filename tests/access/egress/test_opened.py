"""Hosts whose TLS is opened: rules by method and path, and secrets that never enter the sandbox."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.access.egress.rules import Action, Injection, Rule
from tests.access.egress.world import Site, certified, site
from tests.support.egress import Proxy, connect

SECRET = Injection(host="example.com", header="Authorization", secret="KEY", form="Bearer {}")
POST_ONLY = Rule(action=Action.ALLOW, host="example.com", methods=("POST",), path="/v1")


@pytest.fixture
async def web(world: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A site whose certificate the host trusts, as it trusts every public one."""
    context = certified(tmp_path, "example.com")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with site(port=443, tls=context) as made:
        yield made


async def ask(proxy: Proxy, request: bytes, *, trusted: bytes | None = None) -> bytes:
    """As a program inside does that trusts its sandbox's authority, or only `trusted`."""
    call = await proxy.call()
    call.writer.write(connect("example.com:443"))
    assert (await call.head()).startswith(b"HTTP/1.1 200 ")
    authority = proxy.outlet.authority
    assert authority is not None
    context = ssl.create_default_context(cadata=(trusted or authority.certificate_pem).decode())
    await call.writer.start_tls(context, server_hostname="example.com")
    call.writer.write(request)
    try:
        return await call.read()
    finally:
        call.writer.close()


def request(line: str, *headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: example.com", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def test_a_secret_is_put_in_outside_and_replaces_what_the_program_says(proxy: Proxy, web: Site) -> None:
    proxy.vault["somebody/KEY"] = "s3cret"
    proxy.rules("example.com", secrets=(SECRET,))
    answer = await ask(proxy, request("GET /x", "authorization: Bearer guess", "X-Other: 1"))
    assert answer.endswith(b"hello"), answer
    assert b"Authorization: Bearer s3cret\r\n" in web.heads[0]
    assert b"guess" not in web.heads[0]
    assert b"X-Other: 1" in web.heads[0]
    assert b"s3cret" not in answer


async def test_a_secret_that_is_missing_or_no_header_reaches_nobody(proxy: Proxy, web: Site) -> None:
    proxy.rules("example.com", secrets=(SECRET,))
    assert b"there is no secret KEY" in await ask(proxy, request("GET /"))
    proxy.vault["somebody/KEY"] = "a\r\nX-Smuggled: 1"
    answer = await ask(proxy, request("GET /"))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"Smuggled" not in answer
    assert not web.heads


@pytest.mark.parametrize(
    ("line", "is_allowed"),
    [
        ("POST /v1/messages", True),
        ("POST /v1", True),
        ("GET /v1/messages", False),
        ("POST /v2", False),
        ("POST /v1x", False),
        ("POST /v1/../admin", False),
        ("POST /v1/%2e%2e/admin", False),
        ("POST /v1//admin", False),
        ("POST /v1/..;/admin", False),
        ("POST /v1/..%3b/admin", False),
        ("POST /v1/..%00/admin", False),
        ("POST /v1/..%09/admin", False),
        ("POST /v1/%c0%ae%c0%ae/admin", False),
        ("POST /v1/%u002e%u002e/admin", False),
        ("POST /v1/..%20/admin", False),
        ("POST /v1/.../admin", False),
        ("POST /v1/x%0d/admin", False),
        ("POST /v1/caf%C3%A9/a%20b;v=1", True),
    ],
)
async def test_methods_and_paths_are_held_to(proxy: Proxy, web: Site, line: str, is_allowed: bool) -> None:
    proxy.rules(more=(POST_ONLY,))
    answer = await ask(proxy, request(line, "Content-Length: 0"))
    assert answer.startswith(b"HTTP/1.1 200 " if is_allowed else b"HTTP/1.1 403 "), answer
    assert len(web.heads) == is_allowed


@pytest.mark.parametrize(
    "path",
    [
        "/admin",
        "/ADMIN/x",
        "/%61dmin",
        "/x/../admin",
        "//admin",
        "/admin;a=b",
        "/admin/..;/x",
        "/x/..%00/admin",
        "/x/%c0%ae%c0%ae/admin",
        "/%u0061dmin",
        "/%2561dmin",
        "/admin%00.png",
        "/x/.../admin",
    ],
)
async def test_a_denied_path_is_denied_however_it_is_written(proxy: Proxy, web: Site, path: str) -> None:
    proxy.rules("example.com", more=(Rule(action=Action.DENY, host="example.com", path="/admin"),))
    assert (await ask(proxy, request(f"GET {path}"))).startswith(b"HTTP/1.1 403 ")
    assert not web.heads


@pytest.mark.parametrize(
    "header",
    [
        "X-HTTP-Method-Override: DELETE",
        "X-Original-URL: /admin",
        "x_rewrite_url: /admin",
        "X-Method-Override: PUT",
    ],
)
async def test_no_header_talks_a_server_into_another_method_or_path(
    proxy: Proxy, web: Site, header: str
) -> None:
    proxy.rules(more=(POST_ONLY,))
    answer = await ask(proxy, request("POST /v1", "Content-Length: 0", header))
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert not web.heads


async def test_a_secret_is_never_sent_with_a_method_that_echoes_it(proxy: Proxy, web: Site) -> None:
    proxy.vault["somebody/KEY"] = "s3cret"
    proxy.rules("example.com", secrets=(SECRET,))
    for method in ("TRACE", "TRACK"):
        answer = await ask(proxy, request(f"{method} /"))
        assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert not web.heads


async def test_a_request_inside_that_names_another_host_is_refused(proxy: Proxy, web: Site) -> None:
    proxy.rules("example.com", "evil.com", more=(POST_ONLY,))
    answer = await ask(proxy, b"POST /v1 HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 0\r\n\r\n")
    assert b'"other_host"' in answer
    assert not web.heads


async def test_an_upstream_whose_certificate_is_not_trusted_gets_no_secret(
    proxy: Proxy, world: None, tmp_path: Path
) -> None:
    proxy.vault["somebody/KEY"] = "s3cret"
    proxy.rules("example.com", secrets=(SECRET,))
    async with site(port=443, tls=certified(tmp_path, "example.com")) as impostor:
        answer = await ask(proxy, request("GET /"))
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"bad_certificate" in answer
    assert not impostor.heads


async def test_without_such_a_rule_tls_is_not_opened(proxy: Proxy, web: Site, tmp_path: Path) -> None:
    """The program sees the site's own certificate, and the authority of its sandbox vouches for nothing."""
    own = (tmp_path / "ca.pem").read_bytes()
    assert (await ask(proxy, request("GET /"), trusted=own)).endswith(b"hello")
    with pytest.raises(ssl.SSLCertVerificationError):
        await ask(proxy, request("GET /"))


async def test_a_body_goes_through_and_a_slow_one_is_taken_as_it_comes(proxy: Proxy, web: Site) -> None:
    proxy.rules(more=(POST_ONLY,))
    body = b"x" * 300_000
    answer = await asyncio.wait_for(
        ask(proxy, request("POST /v1", f"Content-Length: {len(body)}") + body), 10
    )
    assert answer.endswith(b"hello")
    assert web.bodies == [body]

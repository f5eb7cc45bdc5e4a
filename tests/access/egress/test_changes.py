"""Rules that change in the middle, and upstreams silent at any step: ended, told, the place free."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from sandboxer.access.egress.proxy.dialer import Patience
from sandboxer.access.egress.rules import Action, Injection, Rule, parse_entry
from tests.access.egress.world import ADDRESS, OTHER, Site, certified, listening, site
from tests.support.egress import GET, Call, Proxy, connect
from tests.support.http.served import eventually

ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
INSIDE = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
LOOKS_INSIDE = Rule(action=Action.ALLOW, host="example.com", methods=("GET",))
SECRET = Injection(host="example.com", header="Authorization", secret="KEY", form="Bearer {}")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    context = certified(tmp_path, "example.com", "other.com")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return context


async def shaken(proxy: Proxy, trusted: bytes | None = None) -> Call:
    """A call inside TLS, trusting the sandbox's authority or this one."""
    call = await proxy.call()
    call.writer.write(connect("example.com:443"))
    assert (await call.head()).startswith(b"HTTP/1.1 200 ")
    assert proxy.outlet.authority is not None
    trusted = trusted or proxy.outlet.authority.certificate_pem
    context = ssl.create_default_context(cadata=trusted.decode())
    await call.writer.start_tls(context, server_hostname="example.com")
    return call


async def endless(call: Call, web: Site, request: bytes) -> None:
    web.answer, web.endless = ENDLESS, True
    call.writer.write(request)
    await call.head()
    await call.reader.readexactly(2000)


async def ended(proxy: Proxy, call: Call) -> None:
    proxy.rules("other.com")
    await call.read(10)
    assert ("example.com", "rules_changed") in proxy.denied()
    assert "no rule allows example.com" in proxy.outlet.denials.latest()[0].why
    await eventually(lambda: not proxy.outlet.flows)
    assert (await proxy.ask(GET)).startswith(b"HTTP/1.1 403 ")


async def test_a_tunnel_ends_when_its_host_is_not_allowed_any_more(
    proxy: Proxy, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    async with site(port=443, tls=tls) as web:
        call = await shaken(proxy, (tmp_path / "ca.pem").read_bytes())
        await endless(call, web, INSIDE)
        await ended(proxy, call)


async def test_opened_tls_ends_when_its_host_is_not_allowed_any_more(
    proxy: Proxy, tls: ssl.SSLContext
) -> None:
    proxy.rules(more=(LOOKS_INSIDE,))
    async with site(port=443, tls=tls) as web:
        call = await shaken(proxy)
        await endless(call, web, INSIDE)
        await ended(proxy, call)


async def test_a_tunnel_ends_when_its_tls_is_to_be_opened_from_now_on(
    proxy: Proxy, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """Otherwise it would go on past a rule that looks inside."""
    async with site(port=443, tls=tls) as web:
        call = await shaken(proxy, (tmp_path / "ca.pem").read_bytes())
        await endless(call, web, INSIDE)
        proxy.rules(more=(LOOKS_INSIDE,))
        await call.read(10)
    assert proxy.denied() == [("example.com", "rules_changed")]


async def tunnel(proxy: Proxy, where: str) -> Call:
    call = await proxy.call()
    call.writer.write(connect(where))
    assert (await call.head()).startswith(b"HTTP/1.1 200 ")
    return call


def deny(host: str) -> Rule:
    return Rule(action=Action.DENY, host=host)


async def test_what_nobody_read_ends_when_a_name_is_denied_that_it_may_speak_to(proxy: Proxy) -> None:
    """Where everything was open nobody looked whom it names, and nobody would read its next request."""
    everything = parse_entry("*:*")
    proxy.rules(more=(everything,))
    async with site(port=8080) as web:
        call = await tunnel(proxy, "example.com:8080")
        await endless(call, web, b"GET / HTTP/1.1\r\nHost: denied.com\r\n\r\n")
        proxy.rules(more=(everything, parse_entry("other.com")))
        await call.reader.readexactly(5000)
        proxy.rules(more=(everything, deny("denied.com")))
        await call.read(10)
    assert proxy.denied() == [("example.com", "rules_changed")]
    assert "whom it speaks to" in proxy.outlet.denials.latest()[0].why


async def test_a_connection_ends_when_the_address_that_its_name_led_to_is_denied(proxy: Proxy) -> None:
    for where, port in (("example.com:2222", 2222), ("", 80)):
        proxy.rules(more=(allowed := parse_entry("example.com:*"),))
        async with site(port=port) as web:
            call = await tunnel(proxy, where) if where else await proxy.call()
            await endless(call, web, b"\x00\r\n\r\n" if where else GET)
            proxy.rules(more=(allowed, deny(OTHER)))
            await call.reader.readexactly(5000)
            proxy.rules(more=(allowed, deny(ADDRESS)))
            await call.read(10)
        assert f"the rule `deny {ADDRESS}` denies" in proxy.outlet.denials.latest()[0].why
        await eventually(lambda: not proxy.outlet.flows)


async def test_an_address_that_is_denied_while_it_is_dialled_is_not_spoken_to(proxy: Proxy) -> None:
    proxy.rules("example.com")
    async with site() as web:
        dial = asyncio.get_running_loop().create_connection

        async def deny_and_dial(*given: Any, **named: Any) -> Any:
            made = await dial(*given, **named)
            if given[1:2] == (ADDRESS,):
                proxy.rules("example.com", more=(deny(ADDRESS),))
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "create_connection", deny_and_dial)
            answer = await proxy.ask(GET)
    assert not web.heads
    assert b'"denied_by_rule"' in answer


async def test_tls_to_an_address_ends_when_the_name_that_it_gave_is_denied(
    proxy: Proxy, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    trusted = ssl.create_default_context(cadata=(tmp_path / "ca.pem").read_text())
    for port in (443, 8443):
        address = parse_entry(f"{ADDRESS}:{port}")
        proxy.rules(more=(address,))
        async with site(port=port, tls=tls) as web:
            call = await tunnel(proxy, f"{ADDRESS}:{port}")
            await call.writer.start_tls(trusted, server_hostname="example.com")
            await endless(call, web, INSIDE)
            proxy.rules(more=(address, deny("elsewhere.com")))
            await call.reader.readexactly(5000)
            proxy.rules(more=(address, deny("example.com")))
            await call.read(10)
        assert "its TLS wants to speak to example.com" in proxy.outlet.denials.latest()[0].why
        await eventually(lambda: not proxy.outlet.flows)


async def test_what_is_still_allowed_goes_on(proxy: Proxy) -> None:
    async with site() as web:
        call = await proxy.call()
        await endless(call, web, GET)
        proxy.rules("example.com", "other.com")
        await call.reader.readexactly(5000)
        call.writer.close()
    assert proxy.denied() == []


async def test_a_host_that_cannot_be_connected_to_is_told_in_time(proxy: Proxy) -> None:
    """Nobody answers at that address."""
    proxy.names.set("example.com", "151.101.65.69")
    proxy.connect_s = 0.5
    for ask in (GET, connect("example.com:443")):
        began = time.monotonic()
        answer = await proxy.ask(ask)
        assert answer.startswith(b"HTTP/1.1 504 "), answer
        assert b'"upstream_timed_out"' in answer
        assert time.monotonic() - began < 8
    assert not proxy.outlet.flows


async def test_a_host_that_never_answers_in_tls_is_told_in_time(proxy: Proxy, tls: ssl.SSLContext) -> None:
    proxy.connect_s = 0.5
    proxy.rules(more=(LOOKS_INSIDE,))
    with listening(ADDRESS, 443):
        call = await shaken(proxy)
        call.writer.write(INSIDE)
        assert (await call.head()).startswith(b"HTTP/1.1 504 ")
        assert b'"upstream_timed_out"' in await call.read()
    assert not proxy.outlet.flows


async def test_a_body_that_stops_coming_is_not_waited_for(proxy: Proxy) -> None:
    proxy.patience = Patience(idle_s=0.5)
    hold = asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        await hold.wait()
        writer.close()

    async with await asyncio.start_server(stall, sock=listening(ADDRESS, 80)):
        call = await proxy.call()
        call.writer.write(GET)
        assert (await call.read(10)).endswith(b"hello")
        await eventually(lambda: not proxy.outlet.flows)
        hold.set()


async def test_a_name_that_nobody_resolves_is_told_in_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(host: str, *, owner: str) -> list[str]:
        await asyncio.Event().wait()
        return [host]

    monkeypatch.setattr("sandboxer.access.egress.proxy.dialer.RESOLVE_S", 0.3)
    proxy.names.addresses = never  # type: ignore[method-assign]
    assert b'"name_timed_out"' in await proxy.ask(GET)
    assert not proxy.outlet.flows


async def test_a_secret_does_not_follow_a_redirect_to_another_host(
    proxy: Proxy, tls: ssl.SSLContext, tmp_path: Path
) -> None:
    proxy.vault["somebody/KEY"] = "s3cret"
    proxy.rules("example.com", "other.com", secrets=(SECRET,))
    proxy.names.set("other.com", OTHER)
    async with site(port=443, tls=tls) as web, site(OTHER, 443, tls=tls) as other:
        web.answer = b"HTTP/1.1 302 Found\r\nLocation: https://other.com/\r\nContent-Length: 0\r\n\r\n"
        async with proxy.listening() as port:
            bundle = tmp_path / "bundle.pem"
            assert proxy.outlet.authority is not None
            bundle.write_bytes(proxy.outlet.authority.certificate_pem + (tmp_path / "ca.pem").read_bytes())
            words = ["curl", "-sS", "-L", "--max-time", "20", "--cacert", str(bundle)]
            words += ["-x", f"http://127.0.0.1:{port}", "https://example.com/"]
            curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            said, _ = await curl.communicate()
    assert said == b"hello"
    assert b"Authorization: Bearer s3cret\r\n" in web.heads[0]
    assert b"s3cret" not in other.heads[0]
    assert b"s3cret" not in said


async def test_a_secret_never_goes_out_in_the_clear(proxy: Proxy) -> None:
    """The same host without TLS gets none, and neither does one that a plain request names."""
    proxy.vault["somebody/KEY"] = "s3cret"
    proxy.rules("example.com", secrets=(SECRET,))
    async with site() as plain:
        assert (await proxy.ask(GET)).endswith(b"hello")
    assert b"s3cret" not in plain.heads[0]

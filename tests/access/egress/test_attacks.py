"""What a hostile program inside tries at the proxy. Each ends in a logged refusal, and nobody is reached."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import time

import pytest

from sandboxer.access.egress.proxy.dialer import Patience
from sandboxer.access.egress.proxy.tls import ALERT_DENIED
from sandboxer.access.egress.rules import Action, Limits, Rule, parse_entry
from tests.access.egress.world import ADDRESS, ADDRESS_6, OTHER, OWN, OWN_6, ip, listening, site
from tests.support.egress import GET, Call, Proxy, connect
from tests.support.http.served import eventually


async def hello(call: Call, name: str | None, *, minimum: ssl.TLSVersion | None = None) -> bytes:
    """What comes back for the first words of TLS to `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(back, out, server_hostname=name).do_handshake()
    call.writer.write(out.read())
    return await call.read()


async def test_a_name_does_not_lead_to_an_address_that_is_denied(proxy: Proxy) -> None:
    proxy.names.set("example.com", [ADDRESS], [ADDRESS, OTHER])
    proxy.rules("*", more=(Rule(action=Action.DENY, host=ADDRESS),))
    async with site(ADDRESS) as denied, site(OTHER) as other:
        assert b'"denied_by_rule"' in await proxy.ask(GET)
        # One that has another address is reached there.
        assert (await proxy.ask(GET)).endswith(b"hello")
    assert (len(denied.heads), len(other.heads)) == (0, 1)
    assert proxy.denied() == [("example.com", "denied_by_rule")]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.0.192",
        "168.63.129.16",
        "192.88.99.1",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:10.1.2.3",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a01:203",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "::10.1.2.3",
        "ff02::1",
        "fec0::1",
        "fe80::1%eth0",
    ],
)
async def test_a_name_that_points_to_what_is_not_public_is_refused(proxy: Proxy, address: str) -> None:
    proxy.names.set("example.com", address)
    for ask in (GET, connect("example.com:443")):
        answer = await proxy.ask(ask)
        assert answer.startswith(b"HTTP/1.1 403 "), answer
        assert b'"not_public"' in answer
    assert proxy.denied() == [("example.com", "not_public")] * 2
    assert proxy.outlet.sent == 0


@pytest.mark.parametrize("address", [OWN, OWN_6, f"::ffff:{OWN}"])
async def test_the_hosts_own_public_addresses_are_no_part_of_the_world(proxy: Proxy, address: str) -> None:
    """Something listens there, and a program that is not walled in would be served."""
    proxy.names.set("example.com", address)
    async with site(OWN_6 if address == OWN_6 else OWN) as own:
        answer = await proxy.ask(GET)
        assert answer.startswith(b"HTTP/1.1 403 "), answer
        assert b'"own_address"' in answer
        assert b'"own_address"' in await proxy.ask(connect("example.com:443"))
        with socket.create_connection((OWN_6 if address == OWN_6 else OWN, 80), 5) as unwalled:
            unwalled.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await eventually(lambda: len(own.heads) == 1)
    assert proxy.outlet.sent == 0


async def test_an_address_is_the_hosts_own_from_the_moment_it_has_it(proxy: Proxy) -> None:
    proxy.names.set("example.com", "185.199.109.153")
    assert (await proxy.ask(GET)).startswith((b"HTTP/1.1 502 ", b"HTTP/1.1 504 "))
    ip("addr add 185.199.109.153/32 dev out")
    assert b'"own_address"' in await proxy.ask(GET)


async def test_what_the_operator_keeps_from_sandboxes_is_refused(proxy: Proxy) -> None:
    proxy.never = (ipaddress.IPv4Network("93.184.215.0/24"),)
    async with site() as kept:
        assert b'"own_address"' in await proxy.ask(GET)
    assert not kept.heads


async def test_a_site_with_ipv6_alone_is_reached(proxy: Proxy) -> None:
    proxy.names.set("example.com", ADDRESS_6)
    async with site(ADDRESS_6) as six:
        assert (await proxy.ask(GET)).endswith(b"hello")
    assert len(six.heads) == 1


@pytest.mark.parametrize(
    "host",
    [
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0x7f.0.0.1",
        "127.0.0.01",
        "1.2.3.4.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "::1",
        "example.com%00.evil.com",
        "exa mple.com",
        "user@example.com",
        "example..com",
        "-x.com",
        "",
        "a" * 64 + ".com",
    ],
)
async def test_addresses_in_other_forms_and_malformed_names_are_no_names(proxy: Proxy, host: str) -> None:
    proxy.rules("*")
    for ask in (connect(f"{host}:443"), f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()):
        answer = await proxy.ask(ask)
        assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), answer
    assert not proxy.names.asked


async def test_a_name_that_changes_between_two_looks_is_reached_where_it_was_judged(proxy: Proxy) -> None:
    """One look decides and is used: a second answer, to what is private, is never asked for."""
    proxy.names.set("example.com", ADDRESS, "10.1.2.3")
    async with site() as public, site("10.1.2.3") as private:
        assert (await proxy.ask(GET)).endswith(b"hello")
        assert proxy.names.asked == ["example.com"]
        assert b"not_public" in await proxy.ask(GET)
    assert len(public.heads) == 1
    assert not private.heads


async def test_of_mixed_addresses_only_public_ones_are_tried(proxy: Proxy) -> None:
    proxy.names.set("example.com", ["10.1.2.3", ADDRESS])
    async with site() as public, site("10.1.2.3") as private:
        assert (await proxy.ask(GET)).endswith(b"hello")
    assert public.heads
    assert not private.heads


async def test_a_redirect_is_the_programs_to_follow_and_is_judged_anew(proxy: Proxy) -> None:
    async with site() as public:
        public.answer = (
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
        )
        answer = await proxy.ask(GET)
        assert b"Location: http://169.254.169.254/" in answer
        refused = await proxy.ask(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 403 ")
        proxy.rules("169.254.169.254")
        refused = await proxy.ask(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
        assert b"not_public" in refused


@pytest.mark.parametrize("port", [22, 25, 80, 8080, 0, 99999])
async def test_ports_that_no_rule_names_are_refused(proxy: Proxy, port: int) -> None:
    answer = await proxy.ask(connect(f"example.com:{port}"))
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert proxy.denied()


@pytest.mark.parametrize(
    "head",
    [
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\n"
        b"Content-Length: 5\r\n\r\nabcde",
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: +4\r\n\r\nabcd",
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding : chunked\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nX: a\r\n b\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nX: a\x00b\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\nHost: example.com\n\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nHost: evil.com\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
        b"GET http://example.com@evil.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET http://example.com/#x HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET http://example.com/ HTTP/2.0\r\nHost: example.com\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\nabc",
        b"CONNECT /x HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
    ],
)
async def test_what_two_readers_could_read_in_two_ways_is_refused(proxy: Proxy, head: bytes) -> None:
    async with site() as public:
        answer = await proxy.ask(head)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")), answer
    assert not public.heads
    assert proxy.denied()


async def test_what_follows_a_request_is_judged_by_itself(proxy: Proxy) -> None:
    """A second request behind the first is asked about like the first; what hides behind a body is none."""
    async with site() as public:
        answer = await proxy.ask(GET + b"GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n" + GET)
        assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 403 ") == 1
        posted = await proxy.ask(
            b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\n"
            b"abcGET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
        )
        assert posted.count(b"HTTP/1.1 200 ") == posted.count(b"HTTP/1.1 400 ") == 1
    assert public.bodies == [b"abc"]
    assert len(public.heads) == 2


async def test_words_between_neighbours_and_credentials_for_proxies_go_no_further(proxy: Proxy) -> None:
    async with site() as public:
        await proxy.ask(
            b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Basic eA==\r\n"
            b"Connection: X-Mine, upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nX-Mine: 1\r\n"
            b"X-Kept: 2\r\n\r\n"
        )
    low = public.heads[0].lower()
    assert b"x-kept: 2" in low
    for gone in (b"proxy-authorization", b"upgrade", b"http2-settings", b"x-mine"):
        assert gone not in low


async def test_a_head_without_end_is_cut_off(proxy: Proxy) -> None:
    answer = await proxy.ask(b"GET http://example.com/ HTTP/1.1\r\n" + b"X: y\r\n" * 20_000)
    assert answer.startswith(b"HTTP/1.1 431 "), answer[:80]


async def test_a_slow_head_is_not_waited_for(proxy: Proxy) -> None:
    proxy.patience = Patience(head_s=0.3, answer_s=2, idle_s=5)
    began = time.monotonic()
    call = await proxy.call()
    call.writer.write(b"GET http://example.com/ HT")
    assert (await call.read()).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 3


async def test_a_slow_hello_or_body_is_not_waited_for_and_holds_nobody_up(proxy: Proxy) -> None:
    proxy.patience = Patience(head_s=0.3, answer_s=0.5, idle_s=5)
    async with site(port=443) as silent, site() as public:
        silent.answer = None
        call = await proxy.call()
        call.writer.write(connect("example.com:443"))
        assert (await call.head()).startswith(b"HTTP/1.1 200 ")
        call.writer.write(b"\x16\x03\x01")
        assert await call.read() == b""
        slow = await proxy.call()
        slow.writer.write(
            b"POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\nab"
        )
        assert (await slow.read()).startswith(b"HTTP/1.1 504 ")
        assert (await proxy.ask(GET)).endswith(b"hello")
    assert not public.bodies
    await eventually(lambda: not proxy.outlet.flows)


@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254", "127.0.0.1", OWN])
async def test_a_tunnel_to_an_address_that_is_not_of_the_world_is_refused_though_a_rule_allows_it(
    proxy: Proxy, address: str
) -> None:
    proxy.rules("*", address)
    answer = await proxy.ask(connect(f"{address}:443"))
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert proxy.denied() == [(address, "own_address" if address == OWN else "not_public")]


async def test_an_upstream_that_never_answers_is_a_gateway_timeout(proxy: Proxy) -> None:
    proxy.patience = Patience(head_s=2, answer_s=0.3, idle_s=5)
    async with site() as silent:
        silent.answer = None
        assert (await proxy.ask(GET)).startswith(b"HTTP/1.1 504 ")
    assert (await proxy.ask(GET)).startswith(b"HTTP/1.1 502 ")


async def test_tls_to_another_name_than_was_asked_for_is_broken_off(proxy: Proxy) -> None:
    async with site(port=443) as fronted:
        for name, reason in (("evil.com", "other_server_name"), (None, "no_server_name")):
            call = await proxy.call()
            call.writer.write(connect("example.com:443"))
            assert (await call.head()).startswith(b"HTTP/1.1 200 ")
            # A fatal alert: access denied.
            assert await hello(call, name) == b"\x15\x03\x03\x00\x02\x02\x31"
            assert proxy.denied()[0] == ("example.com", reason)
    assert not fronted.heads


async def test_something_else_than_tls_on_its_port_is_broken_off(proxy: Proxy) -> None:
    async with site(port=443) as plain:
        call = await proxy.call()
        call.writer.write(connect("example.com:443") + b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n")
        assert (await call.read()).startswith(b"HTTP/1.1 200 ")
    assert not plain.heads
    assert proxy.denied() == [("example.com", "not_tls")]


async def tunnel(proxy: Proxy, where: str, said: bytes = b"") -> Call:
    call = await proxy.call()
    call.writer.write(connect(where))
    assert (await call.head()).startswith(b"HTTP/1.1 200 ")
    call.writer.write(said)
    return call


async def test_a_tunnel_to_another_port_does_not_lead_to_another_name(proxy: Proxy) -> None:
    proxy.rules(more=(parse_entry("*:*"), Rule(action=Action.DENY, host="denied.com")))
    async with site(port=8443) as fronted:
        fronted.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        assert await hello(await tunnel(proxy, "example.com:8443"), "denied.com") == ALERT_DENIED
        request = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n"
        for blank, status in ((b"", b"403"), (b"\r\n", b"400")):
            call = await tunnel(proxy, "example.com:8443", blank + request % b"denied.com:8443")
            assert (await call.read()).startswith(b"HTTP/1.1 " + status)
        # Nor does a later request of a connection that begins well.
        call = await tunnel(proxy, "example.com:8443", request % b"example.com:8443")
        assert b"hello" in await call.reader.readuntil(b"hello")
        call.writer.write(request % b"denied.com")
        assert (await call.read()).startswith(b"HTTP/1.1 403 ")
    assert [b"denied" in head for head in fronted.heads] == [False]
    assert {reason for _, reason in proxy.denied()} == {"other_server_name", "other_host", "malformed"}


@pytest.mark.parametrize(
    "said",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"GET / HTTP/2.0\r\nHost: denied.com\r\n\r\n",
        b"GET / http/1.1\r\nHost: denied.com\r\n\r\n",
    ],
)
async def test_http_that_cannot_be_read_is_refused_where_plain_http_is_read(
    proxy: Proxy, said: bytes
) -> None:
    proxy.rules(more=(parse_entry("example.com:*"), parse_entry(f"{ADDRESS}:*")))
    async with site(port=8080) as web:
        answer = await (await tunnel(proxy, "example.com:8080", said)).read()
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b"is not one of HTTP/1.1" in answer
        assert proxy.denied() == [("example.com", "malformed")]
        assert not web.heads
        # An address that a rule allows is whatever is there.
        await (await tunnel(proxy, f"{ADDRESS}:8080", said)).read()
        assert len(web.heads) == 1
        # And where rules tell no names apart, nothing is read.
        proxy.rules(more=(parse_entry("*:*"),))
        await (await tunnel(proxy, "example.com:8080", said)).read()
        assert len(web.heads) == 2


async def test_an_upgrade_to_http_2_is_not_passed_on(proxy: Proxy) -> None:
    proxy.rules(more=(parse_entry("example.com:*"),))
    asked = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    async with site(port=8080) as web:
        request = b"GET / HTTP/1.1\r\nHost: example.com:8080\r\n" + asked + b"\r\n"
        call = await tunnel(proxy, "example.com:8080", request)
        assert b"200 OK" in await call.reader.readuntil(b"hello")
        assert b"h2c" not in web.heads[0].lower()
        assert b"http2-settings" not in web.heads[0].lower()
        # A server that switches unasked is not followed.
        web.answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        assert (await (await tunnel(proxy, "example.com:8080", request)).read()).startswith(b"HTTP/1.1 502 ")


async def test_whoever_speaks_first_is_heard_in_a_tunnel_to_another_port(proxy: Proxy) -> None:
    proxy.rules(more=(parse_entry("example.com:*"),))

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\r\n")
        writer.write(await reader.read(4))
        writer.close()

    async with await asyncio.start_server(greet, sock=listening(ADDRESS, 2222)):
        call = await tunnel(proxy, "example.com:2222")
        assert await call.reader.readexactly(7) == b"hello\r\n"
        call.writer.write(b"\x00you")
        assert await call.read() == b"\x00you"
        # And who only listens is told everything.
        silent = await tunnel(proxy, "example.com:2222")
        silent.writer.write_eof()
        assert await silent.read() == b"hello\r\n"


async def test_rules_that_change_in_the_middle_of_a_download_end_it(proxy: Proxy) -> None:
    async with site() as public:
        public.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
        public.endless = True
        call = await proxy.call()
        call.writer.write(GET)
        await call.head()
        await call.reader.readexactly(2000)
        proxy.rules("other.com")
        await call.read(2)
    assert proxy.denied() == [("example.com", "rules_changed")]
    assert "no rule allows example.com" in proxy.outlet.denials.latest()[0].why
    await eventually(lambda: not proxy.outlet.flows)


async def test_bytes_and_their_rate_are_limited(proxy: Proxy) -> None:
    async with site() as public:
        public.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000
        proxy.rules("example.com", limits=Limits(bytes_per_s=60_000))
        began = time.monotonic()
        # Three of them at this rate: what runs ahead is one read.
        for _ in range(3):
            assert len(await proxy.ask(GET)) > 60_000
        assert time.monotonic() - began > 1.0
        proxy.rules("example.com", limits=Limits(max_bytes=proxy.outlet.sent + proxy.outlet.received + 100))
        await proxy.ask(GET)
        assert b"byte_limit" in await proxy.ask(GET)
    assert ("example.com", "byte_limit") in proxy.denied()


async def test_a_deny_wins_and_a_default_that_allows_still_keeps_to_web_ports(proxy: Proxy) -> None:
    proxy.rules(default=Action.ALLOW)
    proxy.names.set("other.com", OTHER)
    async with site(OTHER) as other:
        assert (await proxy.ask(GET.replace(b"example.com", b"other.com"))).endswith(b"hello")
        assert b'"port"' in await proxy.ask(connect("other.com:22"))
    assert len(other.heads) == 1


async def test_many_callers_at_once_are_all_served_and_leave_nothing(proxy: Proxy) -> None:
    async with site() as public, asyncio.TaskGroup() as group:
        asked = [group.create_task(proxy.ask(GET)) for _ in range(60)]
        await asyncio.wait(asked)
    assert all(task.result().endswith(b"hello") for task in asked)
    assert len(public.heads) == 60
    await eventually(lambda: not proxy.outlet.flows)


async def test_a_program_that_does_not_read_is_not_read_ahead_for(proxy: Proxy) -> None:
    """What it asked for waits outside: the host keeps no more than a little of it."""
    async with site() as public:
        public.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 50_000_000
        call = await proxy.call()
        call.reader._transport.pause_reading()  # type: ignore[attr-defined]
        call.writer.write(GET)
        call.writer.write_eof()
        await eventually(lambda: proxy.outlet.received > 100_000)
        before = -1
        while before != proxy.outlet.received:
            before = proxy.outlet.received
            await asyncio.sleep(0.2)
        assert proxy.outlet.received < 5_000_000
        call.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await call.read()) > 50_000_000

"""An attacker who may name any URL: no way leads to an address that is not public."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.webhooks.carrier import Carrier, Failure, Outcome
from sandboxer.observe.webhooks.endpoints import parse_target, permitted
from tests.observe.webhooks.receivers import receiver

INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.0.1", "192.0.2.7", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1",
]  # fmt: skip
SPELLINGS = [
    "https://2130706433/", "https://0x7f000001/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/",
    "https://0/", "https://localhost/", "https://localhost./", "https://[::1]/", "https://[::ffff:7f00:1]/",
    "https://[0:0:0:0:0:ffff:127.0.0.1]/", "https://[::]/", "https://017700000001/",
    "https://169.254.169.254/latest/meta-data/", "https://[fe80::1]/", "https://3232235777/",
]  # fmt: skip
BAD_URLS = [
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
    "https://user@example.com/", "https://user:pw@example.com/", "https://example.com@127.0.0.1/", "https://",
    "https:///x", "https://example.com:0/", "https://example.com:99999/", "https://exa mple.com/",
    "https://example.com\\@127.0.0.1/", "https://example.com/\r\nhost: x", "https://ⓛocalhost/",
    "https://[::1/", "//example.com/",
    "https://[fe80::1%25eth0]/", "https://example.com/#x", "https://127.0.0.1%00.example.com/",
    "https://" + "a" * 3000 + ".com/",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_permitted(address: str) -> None:
    assert not permitted(ipaddress.ip_address(address), allow_private=False)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_are(address: str) -> None:
    assert permitted(ipaddress.ip_address(address), allow_private=False)


@pytest.mark.parametrize("url", BAD_URLS)
def test_urls_that_are_refused_when_they_are_given(url: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_target(url, allow_private=False)


@pytest.mark.parametrize("url", SPELLINGS)
async def test_no_spelling_of_an_inside_address_is_dialled(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dialled(*_: object) -> None:
        raise AssertionError("it was dialled")

    monkeypatch.setattr(socket.socket, "connect", dialled)
    carrier = Carrier(allow_private=False, timeout_s=5)
    outcome = await carrier.carry(url, {}, b"")
    await carrier.close()
    assert outcome.failure in (Failure.FORBIDDEN_ADDRESS, Failure.INVALID_URL, Failure.DNS), outcome


async def test_a_name_that_points_inside_is_refused_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: public when it is registered, loopback when called; asked once, dialled as answered."""
    asked: list[str] = []
    async with receiver() as there:

        def resolve(host: str, port: int, *args: object, **options: object) -> list[object]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", there.port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        url = f"https://rebind.example.com:{there.port}/"
        parse_target(url, allow_private=False)
        walled = Carrier(allow_private=False, timeout_s=5)
        outcome = await walled.carry(url, {}, b"")
        await walled.close()
        assert (outcome.failure, asked, there.got) == (Failure.FORBIDDEN_ADDRESS, ["rebind.example.com"], [])
        open_one = Carrier(allow_private=True, timeout_s=5)
        outcome = await open_one.carry(url.replace("https", "http"), {}, b"")
        await open_one.close()
        assert outcome.is_accepted
        # The name is what the receiver is told, the address what is dialled; no second look.
        assert len(asked) == 2
        assert there.got[0].headers["host"].startswith("rebind.example.com")


async def test_names_that_nobody_answers_for_hold_up_only_who_named_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look-up cannot be cancelled: more of them than there are threads would hold up everybody's."""
    answers = threading.Event()
    async with receiver() as there:

        def resolve(host: str, port: int, *args: object, **options: object) -> list[object]:
            if host.endswith(".silent.example"):
                answers.wait(30)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", there.port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        carrier = Carrier(allow_private=True, timeout_s=8)

        async def carry(host: str, owner: str) -> Outcome:
            return await carrier.carry(f"http://{host}:{there.port}/", {}, b"", owner=owner)

        silent = [asyncio.ensure_future(carry(f"n{n}.silent.example", "evil")) for n in range(128)]
        await asyncio.sleep(0.5)
        assert (await carry("good.example", "good")).is_accepted
        answers.set()
        await asyncio.gather(*silent)
        await carrier.close()


async def test_a_refused_name_and_an_unknown_one_are_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever sets a URL could ask us which names exist inside."""
    inside = {"db.internal.example": "10.0.0.5", "own.example": "93.184.216.34"}

    def resolve(host: str, port: int, *args: object, **options: object) -> list[object]:
        if host not in inside:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (inside[host], 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    carrier = Carrier(allow_private=False, never=[ipaddress.ip_network("93.184.216.34/32")], timeout_s=5)
    names = ["db.internal.example", "own.example", "no-such-name.example", f"{'a' * 64}.example"]
    outcomes = {name: await carrier.carry(f"https://{name}/", {}, b"") for name in names}
    await carrier.close()
    words = {(one.failure, one.reason.replace(name, "NAME")) for name, one in outcomes.items()}
    assert len(words) == 1, words

"""Mirrors of packages near the host: taken only if they prove by TLS that they are who they are asked for."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from sandboxer.access.egress.policy import Rules
from sandboxer.access.egress.rules import Policy, parse_entry
from sandboxer.kernel.addresses import DialJudge, Verdict
from tests.access.egress.world import certified, site
from tests.support.egress import Proxy

GET = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"
NEAR = "10.1.2.3"


@pytest.fixture
def near(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    proxy.names.set("example.com", NEAR)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return proxy


async def test_a_mirror_that_proves_its_name_is_reached_and_others_beside_it_are_not(
    near: Proxy, tmp_path: Path
) -> None:
    near.mirrors = ("example.com",)
    near.rules("example.com", "other.com")
    near.names.set("other.com", NEAR)
    async with site(NEAR, 443, tls=certified(tmp_path, "example.com")), site(NEAR) as mirror:
        assert (await near.ask(GET)).endswith(b"hello")
        assert b'"not_public"' in await near.ask(GET.replace(b"example.com", b"other.com"))
    assert len(mirror.heads) == 1


async def test_a_host_that_serves_no_packages_is_no_mirror(near: Proxy, tmp_path: Path) -> None:
    async with site(NEAR, 443, tls=certified(tmp_path, "example.com")), site(NEAR) as other:
        assert b'"not_public"' in await near.ask(GET)
    assert not other.heads


async def test_a_mirror_is_reached_at_the_ports_where_it_serves_packages(near: Proxy, tmp_path: Path) -> None:
    """What else a machine near the host serves is its operator's, whoever allows himself to reach it."""
    near.mirrors = ("example.com",)
    near.outlet.change(Rules(Policy(rules=(parse_entry("example.com:8080"),))))
    other_port = GET.replace(b"example.com", b"example.com:8080")
    async with (
        site(NEAR, 443, tls=certified(tmp_path, "example.com")),
        site(NEAR, 8080) as other,
    ):
        assert b'"not_public"' in await near.ask(other_port)
        assert not other.heads
        near.mirrors = ("example.com:8080",)
        assert (await near.ask(other_port)).endswith(b"hello")


async def test_a_name_server_that_lies_leads_nowhere(near: Proxy, tmp_path: Path) -> None:
    near.mirrors = ("example.com",)
    # What is there says another name, or is known to nobody, or speaks no TLS.
    for folder, name in (("named", "elsewhere.com"), ("unknown", "example.com"), (None, "")):
        tls = None
        if folder is not None:
            (tmp_path / folder).mkdir()
            tls = certified(tmp_path / folder, name)
        async with site(NEAR, 443, tls=tls), site(NEAR) as other:
            assert b'"not_public"' in await near.ask(GET), folder
        assert not other.heads


async def test_what_the_operator_keeps_from_sandboxes_is_no_mirror(near: Proxy, tmp_path: Path) -> None:
    near.mirrors = ("example.com",)
    near.never = (ipaddress.IPv4Network("10.0.0.0/8"),)
    async with site(NEAR, 443, tls=certified(tmp_path, "example.com")), site(NEAR) as other:
        assert b'"not_public"' in await near.ask(GET)
    assert not other.heads


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "192.0.0.192",
        "168.63.129.16",
        "100.100.100.200",
        "224.0.0.1",
        "240.0.0.1",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "93.184.215.14",
        "nobody",
        "",
    ],
)
def test_no_mirror_is_on_this_host_or_where_clouds_tell_secrets(address: str) -> None:
    assert DialJudge(is_near=True).judge(address) is Verdict.NOT_PUBLIC

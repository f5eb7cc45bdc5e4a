"""From inside a real sandbox to a test address, through the supervisor's relay and the proxy."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.access.egress.world import Names, certified, site
from tests.support.egress_inside import (
    FETCH,
    allow,
    fetch,
    names,  # noqa: F401
    run,
    served,  # noqa: F401
    settings_of,
    world,  # noqa: F401
)
from tests.support.http.real import why_not
from tests.support.http.served import Served, eventually, serving


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """TLS of a site that the host trusts as it trusts every public one."""
    context = certified(tmp_path, "example.com", "api.example.com")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return context


async def test_what_is_allowed_is_reached_and_the_rest_is_refused_with_words(served: Served) -> None:
    path = await served.sandbox(trust="semi")
    refused = await fetch(served, path, "http://example.com/")
    assert refused.startswith("403 ")
    assert "no rule allows example.com" in refused
    assert "sandboxer egress allow" in refused
    change = {"rules": [{"action": "allow", "host": "example.com"}]}
    answer = await served.client.send("PUT", f"{path}/egress", body=change)
    assert answer.status_code == 200, answer.text
    async with site() as web:
        assert await fetch(served, path, "http://example.com/a") == "hello\n"
        assert web.heads[0].startswith(b"GET /a HTTP/1.1\r\nHost: example.com\r\n")
    denials = (await served.client.get(f"{path}/egress/denials")).json()["denials"]
    assert [(one["host"], one["reason"]) for one in denials] == [("example.com", "no_rule")]


async def test_a_secret_in_a_header_never_enters_the_sandbox(served: Served, trusted: ssl.SSLContext) -> None:
    path = await served.sandbox(trust="semi")
    put = await served.client.send("PUT", "/v1/secrets/API_KEY", body={"value": "s3cret-value"})
    assert put.status_code < 300, put.text
    header = {"host": "api.example.com", "header": "X-Api-Key", "secret": "API_KEY"}
    await allow(served, path, "api.example.com", secrets=[header])
    async with site(port=443, tls=trusted) as web:
        assert await fetch(served, path, "https://api.example.com/v1") == "hello\n"
    assert b"X-Api-Key: s3cret-value\r\n" in web.heads[0]
    look = "env; grep -rs s3cret-value /etc /root /tmp /run /var /workspace; true"
    assert "s3cret-value" not in await run(served, path, "sh", "-c", look)
    shown = (await served.client.get(f"{path}/egress")).text
    assert "API_KEY" in shown
    assert "s3cret-value" not in shown


async def test_tls_that_nobody_opens_goes_through_whole(served: Served, trusted: ssl.SSLContext) -> None:
    path = await served.sandbox(trust="semi")
    await allow(served, path, "example.com")
    fetching = FETCH.replace(
        "timeout=20", "timeout=20, context=__import__('ssl')._create_unverified_context()"
    )
    async with site(port=443, tls=trusted):
        assert await run(served, path, "python3", "-c", fetching, "https://example.com/") == "hello\n"
        refused = await run(served, path, "python3", "-c", fetching, "https://other.com/")
    assert "403" in refused
    shown = (await served.client.get(f"{path}/egress")).json()
    assert shown["sent_bytes"] > 300
    assert shown["received_bytes"] > 300


async def test_what_is_neither_tcp_nor_a_question_about_a_name_goes_nowhere(served: Served) -> None:
    path = await served.sandbox(trust="semi")
    await allow(served, path, "*")
    datagram = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.connect(('93.184.215.14', 123))
line.send(b'x')
line.recv(9)
"""
    assert "ConnectionRefusedError" in await run(served, path, "python3", "-c", datagram)
    for family, kind, protocol in (
        ("AF_INET", "SOCK_RAW", 1),
        ("AF_INET6", "SOCK_RAW", 58),
        ("AF_PACKET", "SOCK_RAW", 0),
    ):
        make = f"import socket; socket.socket(socket.{family}, socket.{kind}, {protocol})"
        said = await run(served, path, "python3", "-c", make)
        assert "PermissionError" in said or "not supported" in said, said


async def test_zero_has_no_way_out_no_variables_and_no_rules(served: Served) -> None:
    path = await served.sandbox(trust="zero")
    assert "PROXY" not in (await run(served, path, "env")).upper()
    knock = "import socket; socket.create_connection(('127.0.0.1', 3128), 3)"
    assert "ConnectionRefused" in await run(served, path, "python3", "-c", knock)
    answer = await served.client.get(f"{path}/egress")
    assert answer.status_code == 409


async def test_the_way_out_is_there_again_after_stop_and_resume_and_in_a_clone(served: Served) -> None:
    path = await served.sandbox(trust="semi")
    await allow(served, path, "example.com")
    async with site():
        for verb in ("stop", "resume"):
            assert (await served.client.post(f"{path}/{verb}", {})).status_code == 200
        assert await fetch(served, path, "http://example.com/") == "hello\n"
        taken = await served.client.post(f"{path}/snapshots", {})
        assert taken.status_code == 201, taken.text
        cloned = await served.client.post(f"/v1/snapshots/{taken.json()['id']}/clone", {"trust": "semi"})
        assert cloned.status_code in (200, 201), cloned.text
        clone = f"/v1/sandboxes/{cloned.json()['sandboxes'][0]['id']}"
        # A new sandbox: its rules are those of its profile, its authority is its own.
        assert "no rule allows" in await fetch(served, clone, "http://example.com/")
        await allow(served, clone, "example.com")
        assert await fetch(served, clone, "http://example.com/") == "hello\n"
    authority = ("cat", "/usr/local/share/ca-certificates/sandboxer-egress.crt")
    assert await run(served, path, *authority) != await run(served, clone, *authority)


async def test_whoever_calls_while_the_server_restarts_is_answered_by_the_next(
    world: None, names: Names, tmp_path: Path
) -> None:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    try:
        async with serving(settings_of(state), None) as first:
            first.defaults = {"resources": {"disk_mb": 128}}
            path = await first.sandbox(trust="semi")
            await allow(first, path, "example.com")
            later = ["python3", "-c", "import time; time.sleep(.7)\n" + FETCH, "http://example.com/"]
            begun = await first.client.post(f"{path}/processes", {"argv": later})
            assert begun.status_code == 201, begun.text
        async with site() as web, serving(settings_of(state), None) as second:
            await eventually(lambda: bool(web.heads), 15)
            assert await fetch(second, path, "http://example.com/") == "hello\n"
            await second.client.delete(path)
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)

"""By host names and TLS, as E2B's clients do it with nothing but a domain and a key."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pytest

from e2b import Sandbox, SandboxException, SandboxState
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import bearer_of
from tests.support.e2b import Resolver, Tls
from tests.support.platforms import Up

# A server that says what it was asked with.
SHOWS_HEADERS = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Shows(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())
HTTPServer(("", 8000), Shows).serve_forever()
"""


@dataclass(frozen=True)
class Edge:
    """What a program of E2B's is given, and a client that trusts the authority."""

    up: Up
    key: str
    domain: str
    options: dict[str, str]
    browser: httpx.Client


@pytest.fixture(scope="module")
def edge(tls: Tls) -> Iterator[Edge]:
    resolver = Resolver()
    trust = ssl.create_default_context(cafile=str(tls.authority))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"):
            patch.delenv(name, raising=False)
        for name in ("SSL_CERT_FILE", "E2B_DOMAIN", "E2B_API_KEY"):
            patch.setenv(name, tls.environment[name])
        with httpx.Client(proxy=resolver.url, verify=trust, timeout=30) as browser:
            yield Edge(tls.up, tls.key, tls.domain, {"proxy": resolver.url}, browser)
    resolver.close()


# Started by E2B's client for `mcp`: it stays in the background, and shows its configuration for its token.
GATEWAY = """#!/usr/bin/python3
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
token, configuration = os.environ["GATEWAY_ACCESS_TOKEN"], sys.argv[sys.argv.index("--config") + 1]
class Gateway(BaseHTTPRequestHandler):
    def do_POST(self):
        is_known = self.headers["authorization"] == "Bearer " + token
        self.send_response(200 if is_known and self.path == "/mcp" else 401)
        self.end_headers()
        self.wfile.write(configuration.encode() if is_known else b"")
os.makedirs("/etc/mcp-gateway", mode=0o700)
open("/etc/mcp-gateway/.token", "w").write(token)
server = HTTPServer(("", 50005), Gateway)
if os.fork() == 0:
    os.setsid()
    for number in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), number)
    server.serve_forever()
"""


def test_a_gateway_of_mcp_is_started_from_the_template_of_its_name_and_reached(edge: Edge) -> None:
    configuration = {"fetch": {"of": "nobody's"}}
    with pytest.raises(SandboxException, match="A gateway of MCP is a program of a template"):
        Sandbox.create(mcp=configuration, allow_internet_access=False, **edge.options)
    with pytest.raises(SandboxException, match="mcp-gateway: command not found"):
        Sandbox.create("base", mcp=configuration, allow_internet_access=False, **edge.options)
    with Sandbox.create(timeout=120, allow_internet_access=False, **edge.options) as template:
        template.files.write("/usr/local/bin/mcp-gateway", GATEWAY, user="root")
        template.commands.run("chmod 755 /usr/local/bin/mcp-gateway", user="root")
        kept = template.create_snapshot(name="mcp-gateway")
    made = Sandbox.create(mcp=configuration, timeout=120, allow_internet_access=False, **edge.options)
    try:
        token = made.get_mcp_token()
        assert Sandbox.connect(made.sandbox_id, **edge.options).get_mcp_token() == token

        def ask(key: str | None) -> httpx.Response:
            return edge.browser.post(made.get_mcp_url(), headers={"authorization": f"Bearer {key}"})

        assert ask(token).json() == configuration
        assert ask("another").status_code == 401
    finally:
        made.kill()
        Sandbox.delete_snapshot(kept.snapshot_id, **edge.options)


def test_a_domain_and_a_key_are_enough(edge: Edge) -> None:
    with Sandbox.create(timeout=120, allow_internet_access=False, **edge.options) as sandbox:
        assert sandbox.get_host(80) == f"80-{sandbox.sandbox_id}.{edge.domain}"
        assert sandbox.commands.run("echo $HOME").stdout == "/home/user\n"
        sandbox.files.write("a", "b")
        assert sandbox.files.read("a") == "b"
        assert [one.name for one in sandbox.files.list(".") if one.name == "a"] == ["a"]
        again = Sandbox.connect(sandbox.sandbox_id, **edge.options)
        assert again.is_running()


def test_signed_addresses_open_one_file_until_they_end(edge: Edge) -> None:
    with Sandbox.create(timeout=120, allow_internet_access=False, **edge.options) as sandbox:
        upload = sandbox.upload_url("signed ü+", use_signature_expiration=60)
        sent = edge.browser.post(upload, files={"file": ("ignored", b"by address")})
        assert sent.status_code == 200, sent.text
        download = sandbox.download_url("signed ü+", use_signature_expiration=60)
        assert edge.browser.get(download).text == "by address"
        assert edge.browser.get(sandbox.download_url("signed ü+")).text == "by address"
        for wrong in (
            download.replace(quote("signed ü+"), "other"),
            download + "&path=/etc/passwd",
            upload,
            sandbox.download_url("signed ü+", use_signature_expiration=-5),
            download.replace("signature=v1_", "signature=v1_%C3%BC"),
        ):
            assert edge.browser.get(wrong).status_code == 401, wrong
        over = edge.browser.get(sandbox.download_url("signed ü+", use_signature_expiration=-5))
        assert over.json() == {"code": 401, "message": "signature is already expired"}


def test_a_program_is_reached_by_the_host_of_its_port_by_everybody(edge: Edge) -> None:
    with Sandbox.create(timeout=120, allow_internet_access=False, **edge.options) as sandbox:
        serve(sandbox)
        address = f"https://{sandbox.get_host(8000)}/"
        assert settled(edge, address).text == "served inside"
        closed = edge.browser.get(f"https://{sandbox.get_host(8001)}/")
        assert (closed.status_code, closed.json()["code"]) == (502, "nothing_listens")
        with Sandboxer(url=edge.up.url, api_key=bearer_of(edge.key)) as ours:
            previews = ours.sandbox(sandbox.sandbox_id.replace("-", "_")).previews
            (opened,) = previews.list()
            assert (opened.port, opened.public, opened.url) == (0, True, None)
            previews.revoke(opened.id)
            assert edge.browser.get(address).status_code == 401


def test_ports_that_are_not_public_open_to_the_token_of_the_traffic(edge: Edge) -> None:
    network = {"allow_public_traffic": False}
    with (
        Sandbox.create(timeout=120, allow_internet_access=False, network=network, **edge.options) as sandbox,
        Sandbox.create(timeout=120, allow_internet_access=False, network=network, **edge.options) as other,
    ):
        sandbox.files.write("show.py", SHOWS_HEADERS)
        sandbox.commands.run("python3 show.py", background=True)
        address = f"https://{sandbox.get_host(8000)}/"
        token = {"e2b-traffic-access-token": str(sandbox.traffic_access_token)}
        assert str(sandbox.traffic_access_token) not in settled(edge, address, token).text
        for wrong in (None, "", "sbt_no", other.traffic_access_token, sandbox._envd_access_token):
            headers = {} if wrong is None else {"e2b-traffic-access-token": wrong}
            refused = edge.browser.get(address, headers=headers)
            assert (refused.status_code, refused.json()["reason"]) == (403, "traffic_token_needed")


def test_programs_see_the_host_that_they_were_given(edge: Edge) -> None:
    network = {"mask_request_host": "shown.example.com:${PORT}"}
    with Sandbox.create(timeout=120, allow_internet_access=False, network=network, **edge.options) as sandbox:
        sandbox.files.write("show.py", SHOWS_HEADERS)
        sandbox.commands.run("python3 show.py", background=True)
        seen = settled(edge, f"https://{sandbox.get_host(8000)}/").text
        assert "Host: shown.example.com:8000" in seen


def test_the_host_of_a_sandbox_that_is_paused_or_gone_says_so(edge: Edge) -> None:
    sandbox = Sandbox.create(timeout=120, allow_internet_access=False, **edge.options)
    address = f"https://{sandbox.get_host(3000)}/"
    for end in (lambda: sandbox.pause(keep_memory=False), sandbox.kill):
        end()
        answer = edge.browser.get(address)
        assert answer.status_code == 502
        assert answer.json() == {
            "sandboxId": sandbox.sandbox_id,
            "message": "The sandbox was not found",
            "code": 502,
        }


def test_a_request_for_a_port_wakes_what_was_to_resume_by_itself(edge: Edge) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    made = Sandbox.create(timeout=120, lifecycle=lifecycle, allow_internet_access=False, **edge.options)
    with made as sandbox, ThreadPoolExecutor(1) as visitor:
        sandbox.pause(keep_memory=False)
        address = f"https://{sandbox.get_host(8000)}/"
        # Who only looks whether it is there does not wake it.
        assert edge.browser.head(address).status_code == 502
        assert sandbox.get_info().state is SandboxState.PAUSED
        asked = visitor.submit(edge.browser.get, address)
        deadline = time.monotonic() + 30
        while sandbox.get_info().state is not SandboxState.RUNNING:
            assert time.monotonic() < deadline, "it was not woken"
            time.sleep(0.2)
        # The visitor waits until something listens.
        serve(sandbox)
        assert asked.result().text == "served inside"


def serve(sandbox: Sandbox) -> None:
    sandbox.files.write("site/index.html", "served inside")
    sandbox.commands.run("cd site; exec python3 -m http.server 8000", background=True)


def settled(edge: Edge, address: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """Asks until what was started listens."""
    deadline = time.monotonic() + 60
    while (answer := edge.browser.get(address, headers=headers)).status_code != 200:
        assert time.monotonic() < deadline, answer.text
    return answer

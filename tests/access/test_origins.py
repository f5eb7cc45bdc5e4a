"""What a program inside may tell a browser, by the origin under which its answer is served."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sandboxer.edges.proxy.answers import GUARD, Origin, fit
from sandboxer.edges.proxy.host_door import without_token
from tests.support.access import Proxied

ACTS_ON_ITS_ORIGIN = [
    b"Set-Cookie: a=1\r\n",
    b"NEL: {}\r\n",
    b"Report-To: {}\r\n",
    b'Reporting-Endpoints: a="https://evil.example"\r\n',
    b"Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n",
    b'Alt-Svc: h2="evil.example:443"\r\n',
    b'Clear-Site-Data: "*"\r\n',
    b"Service-Worker-Allowed: /\r\n",
    b"Public-Key-Pins: x\r\n",
    b"Accept-CH: Sec-CH-UA\r\n",
    b"Critical-CH: Sec-CH-UA\r\n",
    b"Origin-Agent-Cluster: ?1\r\n",
    b"Access-Control-Allow-Credentials: true\r\n",
    b'WWW-Authenticate: Basic realm="platform"\r\n',
    b"Set-Login: logged-in\r\n",
    b"Speculation-Rules: /x\r\n",
    b"SourceMap: /x\r\n",
    b"X-Sandboxer-Anything: 1\r\n",
]
HARMLESS = [b"Content-Type: text/html\r\n", b"ETag: x\r\n", b"X-Total-Count: 3\r\n", b"Location: /a\r\n"]

INSIDE = r"""
import socket
s = socket.create_server(("127.0.0.1", 3000))
bad = b"Set-Cookie: a=1\r\nClear-Site-Data: \"*\"\r\nStrict-Transport-Security: max-age=1\r\nNEL: {}\r\n"
while True:
    c = s.accept()[0]
    head = b""
    while b"\r\n\r\n" not in head:
        more = c.recv(65536)
        if not more:
            break
        head += more
    if b"upgrade: websocket" in head.lower():
        c.sendall(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + bad + b"\r\n")
    elif head.startswith(b"GET /interim"):
        hints = b"HTTP/1.1 103 Early Hints\r\n" + bad + b"\r\n"
        c.sendall(hints * int(head.split(b"?")[1].split(b" ")[0]))
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    else:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(head) + bad + b"\r\n" + head)
    c.close()
"""


@pytest.mark.parametrize("line", ACTS_ON_ITS_ORIGIN, ids=lambda line: line.partition(b":")[0].decode())
def test_under_the_platform_s_origin_only_harmless_headers_pass(line: bytes) -> None:
    assert fit([*HARMLESS, line], Origin.PLATFORM) == [*HARMLESS, GUARD]


def test_a_cookie_stays_with_its_name_and_ours_is_never_set_from_inside() -> None:
    wide = b"Set-Cookie: a=1; Path=/; DOMAIN = box.test; Secure\r\n"
    assert fit([wide], Origin.SHARED) == [b"Set-Cookie: a=1; Path=/; Secure\r\n"]
    assert fit([wide], Origin.OWN) == [wide]
    for name in (b"sandboxer_preview", b"__Host-sandboxer_preview"):
        for origin in (Origin.SHARED, Origin.OWN):
            assert fit([b"Set-Cookie: " + name + b" =x; Path=/\r\n"], origin) == []
    assert fit([b'Clear-Site-Data: "cookies"\r\n'], Origin.SHARED) == []


@pytest.mark.parametrize("path", [b"//evil.example", b"/\\evil.example", b"/\\/\\evil.example"])
def test_a_link_never_leads_away_from_its_own_host(path: bytes) -> None:
    clean, token = without_token(path + b"?sandboxer_token=x")
    assert (clean, token) == (b"/evil.example", "x")


@pytest.fixture
async def hostile(proxied: Proxied) -> str:
    """The path of a sandbox whose server says everything it must not."""
    path = await proxied.served.sandbox()
    await proxied.served.client.post(f"{path}/processes", {"argv": ["python3", "-c", INSIDE]})

    async def listens() -> bool:
        return (await proxied.served.client.get(f"{path}/ports/3000/")).status_code == 200

    deadline = asyncio.get_running_loop().time() + 10
    while not await listens():
        assert asyncio.get_running_loop().time() < deadline
    return path


async def test_by_path_nothing_said_inside_acts_on_the_platform(proxied: Proxied, hostile: str) -> None:
    client = proxied.served.client
    plain = await client.get(f"{hostile}/ports/3000/", headers={"cookie": "console=secret"})
    assert not {"set-cookie", "nel", "strict-transport-security", "clear-site-data"} & set(plain.headers)
    assert "console=secret" not in plain.text, "the platform's cookies are not for the program inside"
    for asked, status in (("/interim?3", b"200 OK"), ("/interim?20", b"502 ")):
        raw = await _raw(proxied, client.request("GET", f"{hostile}/ports/3000{asked}"))
        assert status in raw
        assert raw.count(b"HTTP/1.1 103") <= 8
        assert not any(word in raw.lower() for word in (b"set-cookie", b"nel:", b"clear-site-data"))


async def test_by_path_an_upgrade_is_guarded_like_any_answer(proxied: Proxied, hostile: str) -> None:
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
    }
    request = proxied.served.client.request("GET", f"{hostile}/ports/3000/ws", headers=upgrade)
    raw = await _raw(proxied, request)
    assert raw.startswith(b"HTTP/1.1 101 ")
    assert b"Content-Security-Policy: sandbox" in raw
    assert not any(word in raw.lower() for word in (b"set-cookie", b"strict-transport", b"clear-site-data"))


async def test_by_path_a_signed_body_has_to_come(proxied: Proxied, hostile: str) -> None:
    """A hash of something signed, and nothing sent: whoever carries the head could drop the body."""
    client = proxied.served.client
    for method in ("PUT", "GET", "DELETE"):
        request = client.request(method, f"{hostile}/ports/3000/x", content=b"what was signed")
        request.headers["content-length"] = "0"
        request.stream = httpx.ByteStream(b"")
        answer = await client.http.send(request)
        assert answer.status_code == 401, (method, answer.text)
        assert answer.json()["reason"] == "body_mismatch"


async def test_strangers_cannot_tell_which_sandboxes_exist_and_are_slowed_down(
    proxied: Proxied, hostile: str
) -> None:
    nobodys = "sbx_" + "0" * 26
    url = proxied.served.url
    async with httpx.AsyncClient() as http:
        for token in ("", "?sandboxer_token=prv_x.y"):
            answers = [
                await http.get(f"{url}/v1/sandboxes/{name}/ports/3000/{token}")
                for name in (nobodys, hostile.rsplit("/", 1)[1])
            ]
            assert [_shown(one) for one in answers] == [_shown(answers[0])] * 2
    by_name = [await proxied.ask(proxied.host(path)) for path in (f"/x/{nobodys}", hostile)]
    assert [_shown(one) for one in by_name] == [_shown(by_name[0])] * 2
    assert by_name[0].status_code == 401
    for number in range(200):
        answer = await proxied.ask(f"3000-sbx-{number:026d}.box.test")
        if answer.status_code == 429:
            break
    assert answer.status_code == 429, "ids can be guessed without end"
    assert int(answer.headers["retry-after"]) >= 1


async def test_strangers_wake_a_sandbox_a_few_times_a_minute(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path)
    seen = []
    for _ in range(8):
        await proxied.served.client.post(f"{path}/freeze")
        answer = await proxied.ask(host)
        seen.append(answer.status_code)
        await proxied.served.client.post(f"{path}/thaw")
    assert seen.count(200) == 6, seen
    assert seen[-1] == 429
    assert int(answer.headers["retry-after"]) >= 1


async def test_strangers_who_only_look_wake_nothing_and_who_holds_a_link_does(proxied: Proxied) -> None:
    path = await proxied.website()
    made = await proxied.preview(path, public=True)
    host, by_path = proxied.host(path), f"{proxied.served.url}{path}/ports/3000"
    await proxied.served.client.post(f"{path}/freeze")
    looks = (("HEAD", "/"), ("OPTIONS", "/"), ("GET", "/robots.txt"), ("GET", "/favicon.ico?v=2"))
    for method, target in looks:
        asleep = await proxied.ask(host, target, method)
        assert (asleep.status_code, asleep.headers["retry-after"]) == (503, "60"), (method, target)
        async with httpx.AsyncClient(timeout=20.0) as http:
            assert (await http.request(method, by_path + target)).status_code == 503, (method, target)
    sandbox = (await proxied.served.client.get(path)).json()
    assert sandbox["state"] == "frozen"
    assert (asleep.json()["reason"], asleep.json()["fault"]) == ("asleep", "sandbox")
    # A browser asks so before a request from another origin, which comes only after an answer.
    preflight = {"origin": "https://app.example", "access-control-request-method": "PUT"}
    assert (await proxied.ask(host, "/", "OPTIONS", headers=preflight)).status_code != 503
    # Awake, it answers them itself.
    assert (await proxied.ask(host, "/", "HEAD")).status_code == 200
    await proxied.served.client.delete(f"{path}/previews/{made['id']}")
    link = {"x-sandboxer-preview": str((await proxied.preview(path))["token"])}
    await proxied.served.client.post(f"{path}/freeze")
    assert (await proxied.ask(host, "/", "HEAD", headers=link)).status_code == 200


def _shown(answer: httpx.Response) -> tuple[int, dict[str, object]]:
    body = {name: value for name, value in answer.json().items() if name != "request_id"}
    return answer.status_code, body


async def _raw(proxied: Proxied, request: httpx.Request) -> bytes:
    """Every byte that comes back, interim answers included."""
    host, port = proxied.served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in request.headers.raw]
    if "upgrade" not in request.headers:
        lines.append("Connection: close")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(20):
        got = await reader.read()
    writer.close()
    return got

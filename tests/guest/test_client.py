"""The client of the inside, against a server that says whatever a test wants: bodies of every form, refusals,
ends in between.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.support.guest import GUEST


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as it is shipped, but for the folder that it looks into."""
    folder = tmp_path_factory.mktemp("client")
    made = subprocess.run(
        ["make", "-s", "-C", GUEST, "print-flags"], check=True, capture_output=True, text=True
    )
    sources = [str(one) for one in sorted((GUEST / "client").glob("*.c"))]
    place = f'-DFOLDER="{folder / "inside"}"'
    subprocess.run(["cc", *made.stdout.split(), place, *sources, "-o", str(folder / "sandboxer")], check=True)
    (folder / "inside").mkdir()
    return folder / "sandboxer"


Ran = tuple[int, bytes, bytes, bytes]


async def run(client: Path, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        client, *argv, stdin=-1, stdout=-1, stderr=-1, env={"PATH": "/usr/bin:/bin"}
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 20)
    assert process.returncode is not None
    return process.returncode, out, err


async def ask(client: Path, *argv: str, answer: list[bytes], stdin: bytes = b"") -> Ran:
    """Runs it before a server that sends these pieces; returns also what it asked for."""
    heard = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard = await reader.readuntil(b"\r\n\r\n")
        for line in heard.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                heard += await reader.readexactly(int(line.split(b":")[1]))
        for piece in answer:
            writer.write(piece)
            await writer.drain()
        writer.close()

    place = client.parent / "inside" / "api.sock"
    server = await asyncio.start_unix_server(serve, place)
    async with server:
        code, out, err = await run(client, "api", *argv, stdin=stdin)
    place.unlink(missing_ok=True)
    return code, out, err, heard


async def test_a_request_is_whole_and_its_answer_is_printed(client: Path) -> None:
    answer = [b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n", b'{"a', b'": 1}', b"\n more"]
    code, out, _, heard = await ask(client, "POST", "/v1/sandboxes?x=1", '{"ttl": "5m"}', answer=answer)
    assert (code, out) == (0, b'{"a": 1}\n')
    head, body = heard.split(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/sandboxes?x=1 HTTP/1.1\r\nHost: localhost\r\n")
    assert body == b'{"ttl": "5m"}'
    assert b"authorization" not in heard.lower()


async def test_a_body_is_read_from_stdin(client: Path) -> None:
    body = b'{"x": "' + b"y" * 300_000 + b'"}'
    answer = [b"HTTP/1.1 204 No Content\r\n\r\n"]
    code, out, _, heard = await ask(client, "PUT", "/v1/x", "-", answer=answer, stdin=body)
    assert (code, out) == (0, b"")
    assert heard.endswith(body)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("200 OK", 0),
        ("302 Found", 0),
        ("401 No", 3),
        ("402 Pay", 4),
        ("404 No", 4),
        ("500 No", 5),
        ("503 No", 5),
    ],
)
async def test_the_exit_code_says_what_the_status_means(client: Path, status: str, code: int) -> None:
    answer = [f"HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nwords".encode()]
    assert (await ask(client, "GET", "/v1/x", answer=answer))[:2] == (code, b"words")


FORMS: dict[str, tuple[list[bytes], bytes]] = {
    "chunks": (
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n\r\n"],
        b"abcde",
    ),
    "up to the end": ([b"HTTP/1.1 200 OK\r\n\r\nabc", b"de"], b"abcde"),
    "byte by byte": ([bytes([one]) for one in b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"], b"abc"),
    "after a 100": ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"], b"a"),
    "large": ([b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"z" * 1_000_000], b"z" * 1_000_000),
}


@pytest.mark.parametrize("form", FORMS)
async def test_bodies_of_every_form_arrive(client: Path, form: str) -> None:
    answer, body = FORMS[form]
    assert (await ask(client, "GET", "/v1/x", answer=answer))[:2] == (0, body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    ],
)
async def test_what_breaks_off_or_is_no_answer_is_an_error_in_words(client: Path, answer: bytes) -> None:
    code, _, err, _ = await ask(client, "GET", "/v1/x", answer=[answer])
    assert code in (1, 5)
    assert err.startswith(b"sandboxer: ")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["create"],
        ["api"],
        ["api", "GET"],
        ["api", "get", "/v1/x"],
        ["api", "GET", "v1/x"],
        ["api", "GET", "/v1/x y"],
        ["api", "GET", "/v1/x\r\nAuthorization: Bearer x"],
        ["api", "GET /v1/x HTTP/1.1\r\n", "/"],
        ["api", "GET", "/v1/x", "{}", "more"],
        ["discover", "--yaml"],
    ],
)
async def test_wrong_usage_is_told_and_nothing_is_sent(client: Path, argv: list[str]) -> None:
    code, out, err = await run(client, *argv)
    assert (code, out) == (2, b"")
    assert err


async def test_without_a_socket_it_says_what_is_missing(client: Path) -> None:
    code, _, err = await run(client, "api", "GET", "/v1/x")
    assert code == 5
    assert b"may not speak to the platform" in err
    code, _, err = await run(client, "discover")
    assert code == 5
    assert b"nothing is said" in err

"""A secret that was injected, used and wiped is found nowhere: kept, said or shown. Real walls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sandboxer.artifacts.images.oci.export import Form
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from tests.support.http.served import Served, eventually
from tests.support.secrets import here, inject, opened, out, state  # noqa: F401

SHOWN = (
    "/v1/secrets",
    "/v1/audit?limit=500",
    "/v1/audit/export",
    "/v1/accounts/me",
    "/v1/accounts/me/events?follow=false",
    "/v1/webhooks",
    "/v1/usage",
    "/metrics",
)
# Says what is in the file, by its digest alone, for as long as it is asked to.
WATCHING = "cd /root; while :; do cat /run/secrets/TOKEN 2>&- | sha256sum > new; mv new now; sleep 0.1; done"
NOTHING = hashlib.sha256(b"").hexdigest()


@pytest.mark.slow
async def test_no_byte_of_a_value_is_left_anywhere(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    # The test's own client, which has to write it.
    caplog.set_level(logging.INFO, logger="httpcore")
    value = f"{secrets.token_hex(16)}+/ä"
    digest = hashlib.sha256(value.encode()).hexdigest()
    seen: list[bytes] = []
    receiver = await _receiver(seen)
    url = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
    async with receiver, opened(here(state, webhook_allow_private=True)) as served:
        hook = await served.client.post("/v1/webhooks", {"url": url, "kinds": ["*"]})
        assert hook.status_code == 201, hook.text
        path = await served.sandbox()
        argv = {"argv": ["/bin/sh", "-c", WATCHING]}
        assert (await served.client.post(f"{path}/processes", argv)).status_code == 201
        kept = await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": value})
        assert kept.status_code in (200, 201), kept.text
        await inject(served, path, names=["TOKEN"], files=True)
        # What ran before sees it come, as a new command does.
        await _sees(served, path, digest)
        assert digest in await out(served, path, 'printf %s "$TOKEN" | sha256sum')
        holder = {"argv": ["/bin/sh", "-c", "exec sleep 1000"]}
        assert (await served.client.post(f"{path}/processes", holder)).status_code == 201
        assert list(_shown_by_host(value)) == []
        snapshot = await served.client.post(f"{path}/snapshots", {"name": "with"})
        image = await served.client.post("/v1/images", {"snapshot": snapshot.json()["id"], "name": "made"})
        assert image.status_code == 201, image.text
        wrong = await served.client.send("PUT", f"{path}/secrets", body={"values": {"a b": value}})
        wrong_type = await served.client.send("PUT", "/v1/secrets/TOKEN", body={"value": [value]})
        assert (wrong.status_code, wrong_type.status_code) == (422, 422)
        shown = [wrong.content, wrong_type.content, image.content, snapshot.content, kept.content]
        wiped = await served.client.delete(f"{path}/secrets")
        assert wiped.status_code == 200
        await _sees(served, path, NOTHING)
        for where in (*SHOWN, path, f"{path}/secrets", f"{path}/events?follow=false", f"{path}/processes"):
            answer = await served.client.get(where)
            assert answer.status_code == 200, (where, answer.text)
            shown.append(answer.content)
        await eventually(lambda: b"secrets.wiped" in b"".join(seen), seconds=30)
        assert _marks(value, b"".join([*shown, *seen])) == []
        await asyncio.to_thread(os.sync)
    # The database as it lies there, its journal, the pool with snapshot and image; and all that was logged.
    words = [word for form in _forms(value) for word in ("-e", form)]
    assert await asyncio.to_thread(_holders, state, words) == ""
    assert len(caplog.text) > 1000
    assert _marks(value, caplog.text.encode()) == []


@pytest.mark.slow
async def test_no_exported_archive_has_what_was_injected(state: Path) -> None:
    value = secrets.token_hex(16)
    async with opened(here(state)) as served:
        path = await served.sandbox()
        await inject(served, path, values={"TOKEN": value}, files=True)
        await out(served, path, "echo a-word-that-is-on-the-disk > /root/word")
        image = await served.client.post("/v1/images", {"sandbox": path.rsplit("/", 1)[1], "name": "made"})
        assert image.status_code == 201, image.text
        assert await _exported(served, image.json()["id"], "a-word-that-is-on-the-disk") != []
        assert await _exported(served, image.json()["id"], value) == []


async def test_every_text_comes_through_whole_and_the_rest_is_refused(state: Path) -> None:
    fine = {
        "LINES": "one\ntwo\r\n\n",
        "QUOTES": "a'b\"c`d$(e) \\f\t",
        "UNICODE": "schlüssel 鍵 🔑",
        "LARGE": "x" * 65536,
        "_9": "=",
    }
    async with opened(here(state)) as served:
        path = await served.sandbox()
        await inject(served, path, values=fine, files=True)
        for name, value in fine.items():
            wanted = hashlib.sha256(value.encode()).hexdigest()
            both = await out(
                served, path, f'printf %s "${name}" | sha256sum; sha256sum < /run/secrets/{name}'
            )
            assert both.split() == [wanted, "-", wanted, "-"], name
        for name, value, status in (
            ("EMPTY", "", 422),
            ("NUL", "a\0b", 422),
            ("HALF", "\ud800", 422),
            ("LARGER", "x" * 65537, 422),
            ("schlüssel", "x", 422),
            ("../etc/passwd", "x", 422),
            ("A=B", "x", 422),
        ):
            answer = await served.client.send("PUT", f"{path}/secrets", body={"values": {name: value}})
            assert answer.status_code == status, (name, answer.text)
            assert answer.json()["detail"]
        assert len((await served.client.get(f"{path}/secrets")).json()["secrets"]) == len(fine)


def _forms(value: str) -> list[str]:
    data = value.encode()
    return [value, data.hex(), base64.b64encode(data).decode().rstrip("=")[:-1], quote(value, safe="")]


def _marks(value: str, text: bytes) -> list[str]:
    return [form for form in _forms(value) if form.encode() in text]


def _shown_by_host(value: str) -> Iterator[str]:
    """Command lines of all, and variables of what is not inside: a sandbox has uids of its own."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            continue
        try:
            inside = folder.stat().st_uid >= 65536
            for name in ("cmdline",) if inside else ("cmdline", "environ"):
                if value.encode() in (folder / name).read_bytes():
                    yield f"{folder.name}/{name}"
        except OSError:
            continue


def _holders(folder: Path, words: list[str]) -> str:
    """Files below that hold one of these; the loop file of the pool itself included."""
    return subprocess.run(["grep", "-rlaF", *words, str(folder)], capture_output=True, text=True).stdout


async def _exported(served: Served, image_id: str, value: str) -> list[str]:
    """What of it is in the archive, whose layers are plain. Piece by piece, as the route sends it."""
    owner = Caller(public_key=served.owner.public_key, account=OWNER_ACCOUNT, is_owner=True)
    made = await served.platform.artifacts.exporting.export(image_id, Form.OCI, owner)
    found, before = [], b""
    async for piece in made.chunks:
        found += _marks(value, before + piece)
        before = piece[-200:]
    return found


async def _receiver(seen: list[bytes]) -> asyncio.Server:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line[:15] == b"content-length:"
        )
        seen.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(take, "127.0.0.1", 0)


async def _sees(served: Served, path: str, digest: str) -> None:
    async with asyncio.timeout(30):
        await out(served, path, f"until grep -q {digest} /root/now; do sleep 0.1; done")

"""Imports of archives that take long: they end with whoever waits for them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.support.http.served import Served, eventually


@pytest.fixture(scope="module")
def slow_archive() -> bytes:
    """A Docker archive of a few megabytes that is read for many seconds."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        block = tarfile.TarInfo("d/0").tobuf()
        layer.write(block)
        for number in range(300_000):
            layer.write(_renamed(block, number))
        tar.offset = layer.tell()
    config = json.dumps(
        {"rootfs": {"diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()]}}
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "Layers": ["layer.tar"]}]).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as tar:
        for name, content in (
            ("manifest.json", manifest),
            ("config.json", config),
            ("layer.tar", layer.getvalue()),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return whole.getvalue()


def _renamed(block: bytes, number: int) -> bytes:
    """The same header for another name: its checksum follows."""
    name = b"d/%08d" % number
    fresh = bytearray(block)
    fresh[: len(name)] = name
    fresh[148:156] = b" " * 8
    fresh[148:156] = b"%06o\0 " % sum(fresh)
    return bytes(fresh)


async def test_an_import_ends_when_its_client_leaves(served: Served, slow_archive: bytes) -> None:
    client = served.client
    sending = asyncio.create_task(client.send("POST", "/v1/images/import?name=slow", content=slow_archive))
    await eventually(lambda: bool(unpackers()), 20.0)
    sending.cancel()
    await asyncio.wait({sending})
    await eventually(lambda: not unpackers(), 10.0)
    await eventually(lambda: not served.platform.artifacts.importing.slots.locked(), 5.0)
    listed = (await client.get("/v1/images")).json()["images"]
    assert [one["name"] for one in listed] == []


def unpackers() -> list[int]:
    """Our children that unpack archives."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            is_one = b"oci.unpacker" in (entry / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if is_one and parent == os.getpid():
            found.append(int(entry.name))
    return found

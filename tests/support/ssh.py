"""A platform with its SSH gate open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandboxer.access.ssh import Gateway
from sandboxer.edges.http.server import listen
from sandboxer.edges.ssh.dependencies import Bounds
from sandboxer.edges.ssh.gateway import open_gateway
from sandboxer.settings import Settings
from tests.support.http.real import GUEST, IMAGES, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client

OPTIONS = ("-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes")


@dataclass
class Said:
    code: int
    out: bytes
    err: str


@dataclass
class Gated:
    served: Served
    gateway: Gateway
    folder: Path

    def new_key(self, name: str = "id", kind: str = "ed25519") -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(path)], check=True)
        return path

    async def add(self, key: Path, client: Client | None = None, **wanted: object) -> str:
        body = {"public_key": key.with_suffix(".pub").read_text(), **wanted}
        answer = await (client or self.served.client).post("/v1/ssh-keys", body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def known_hosts(self) -> Path:
        """Written once: a client that was started a moment ago may be reading it."""
        known = self.folder / "known_hosts"
        line = f"[127.0.0.1]:{self.gateway.port} {self.gateway.host_key}\n"
        if not known.exists() or known.read_text() != line:
            known.write_text(line)
        return known

    def config(self, key: Path, path: str) -> list[str]:
        """The sandbox is then `box`, as in anybody's ssh_config."""
        known = self.known_hosts()
        lines = ["Host box", "HostName 127.0.0.1", f"Port {self.gateway.port}"]
        lines += [f"User {path.rsplit('/', 1)[1]}", f"IdentityFile {key}", "IdentitiesOnly yes"]
        lines += [f"UserKnownHostsFile {known}", "StrictHostKeyChecking yes", "BatchMode yes"]
        (self.folder / "config").write_text("\n    ".join(lines) + "\n")
        return ["-F", str(self.folder / "config")]

    def options(self, key: Path, port: str = "-p") -> list[str]:
        known = self.known_hosts()
        return [port, str(self.gateway.port), "-i", str(key), "-o", f"UserKnownHostsFile={known}", *OPTIONS]

    async def ssh(
        self, key: Path, path: str, *words: str, stdin: bytes = b"", flags: tuple[str, ...] = ()
    ) -> Said:
        user = path.rsplit("/", 1)[1]
        return await run(
            "ssh", *self.options(key), *flags, f"{user}@127.0.0.1", *words, stdin=stdin, folder=self.folder
        )

    async def started(self, key: Path, path: str, *words: str) -> asyncio.subprocess.Process:
        user = path.rsplit("/", 1)[1]
        return await asyncio.create_subprocess_exec(
            "ssh",
            *self.options(key),
            *words[:-1],
            f"{user}@127.0.0.1",
            words[-1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


async def run(*words: str, stdin: bytes = b"", folder: Path, env: dict[str, str] | None = None) -> Said:
    process = await asyncio.create_subprocess_exec(
        *words,
        # A program that closes its input at once would make an empty write fail.
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **(env or {})},
    )
    try:
        async with asyncio.timeout(40):
            out, err = await process.communicate(stdin or None)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"{words} hangs: {out[-400:]!r} {err[-400:]!r}") from None
    assert process.returncode is not None
    return Said(process.returncode, out, err.decode(errors="replace"))


@asynccontextmanager
async def opened(tmp_path: Path, *, bounds: Bounds | None = None, **more: Any) -> AsyncIterator[Gated]:
    settings = Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        guest_dir=GUEST,
        pool_size_mb=800,
        **more,
    )
    async with serving(settings, None) as served:
        served.defaults = {"resources": {"disk_mb": 128}}
        listening = listen("127.0.0.1", 0)
        with contextlib.closing(listening):
            async with open_gateway(served.platform, listening, bounds=bounds) as gateway:
                yield Gated(served, gateway, tmp_path)
        for sandbox in (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
            await served.client.delete(f"/v1/sandboxes/{sandbox['id']}")


@pytest.fixture
async def gated(tmp_path: Path) -> AsyncIterator[Gated]:
    if why := why_not() or (None if shutil.which("ssh") else "there is no ssh: openssh-client"):
        pytest.skip(why)
    try:
        async with opened(tmp_path) as gate:
            yield gate
    finally:
        if os.path.ismount(tmp_path / "state" / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(tmp_path / "state" / "pool")], check=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])

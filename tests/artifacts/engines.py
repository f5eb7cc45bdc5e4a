"""Docker and Podman as the tests of archives drive them: nothing installed, nothing left running."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BUSYBOX = "/bin/busybox"
CGROUPS = Path("/sys/fs/cgroup")


class Engine(Protocol):
    # What `save` can write.
    forms: Sequence[str]

    async def load(self, archive: Path) -> str: ...
    async def run(self, image: str, script: str) -> str: ...
    async def build(self, context: Path, tag: str) -> None: ...
    async def save(self, form: str, tag: str, to: Path) -> None: ...
    async def remove(self, image: str) -> None: ...


async def call(argv: Sequence[str], **env: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return str(done.stdout)


class Podman:
    """With what some hosts force on it: crun refuses cgroup v1 and v2 at once, hosts its limits."""

    forms = ("docker-archive", "oci-archive", "zstd")
    LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096")
    HIDE = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"'

    async def __call__(self, *words: str) -> str:
        return await call(["unshare", "--mount", "sh", "-c", self.HIDE, "podman", *words])

    async def load(self, archive: Path) -> str:
        return (await self("load", "--input", str(archive))).strip().rsplit(": ", 1)[1]

    async def run(self, image: str, script: str) -> str:
        flags = ("--rm", "--network=none", "--cgroups=disabled", *self.LIMITS)
        return await self("run", *flags, image, "/bin/sh", "-c", script)

    async def build(self, context: Path, tag: str) -> None:
        how = ("--network=host", "--isolation=chroot", "--layers", *self.LIMITS)
        await self("build", *how, "--tag", tag, str(context))

    async def save(self, form: str, tag: str, to: Path) -> None:
        if form == "zstd":
            await self("push", "--compression-format=zstd", tag, f"oci-archive:{to}")
        else:
            await self("save", "--format", form, "--output", str(to), tag)

    async def remove(self, image: str) -> None:
        await self("rmi", "--force", image)


@dataclass
class Docker:
    """A daemon of our own: its state in a folder of ours, no bridge, no rules of the firewall."""

    socket: Path
    forms: Sequence[str] = ("docker save",)

    async def __call__(self, *words: str) -> str:
        return await call(["/usr/bin/docker", "-H", f"unix://{self.socket}", *words], DOCKER_BUILDKIT="0")

    async def load(self, archive: Path) -> str:
        return (await self("load", "--input", str(archive))).strip().rsplit(": ", 1)[1]

    async def run(self, image: str, script: str) -> str:
        return await self("run", "--rm", "--network=none", image, "/bin/sh", "-c", script)

    async def build(self, context: Path, tag: str) -> None:
        await self(
            "build", "--network=none", "--file", str(context / "Containerfile"), "-t", tag, str(context)
        )

    async def save(self, form: str, tag: str, to: Path) -> None:
        await self("save", "--output", str(to), tag)

    async def remove(self, image: str) -> None:
        await self("rmi", "--force", image)


def why_no_docker() -> str | None:
    if os.path.exists("/usr/bin/docker") and shutil.which("dockerd") is not None:
        return None
    return "docker.io is not installed: scripts/system-packages ci"


@asynccontextmanager
async def docker_daemon(*options: str, storage: str = "vfs") -> AsyncIterator[Docker]:
    # A socket's path may have 107 bytes; those of pytest are longer.
    with tempfile.TemporaryDirectory(prefix="dk-", dir="/var/tmp") as made:
        home = Path(made)
        docker = Docker(home / "sock")
        parent = f"sandboxer-tests-{os.getpid()}"
        with (home / "log").open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(
                "dockerd",
                *("--host", f"unix://{docker.socket}", "--pidfile", str(home / "pid")),
                *("--data-root", str(home / "data"), "--exec-root", str(home / "exec")),
                *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
                *(f"--storage-driver={storage}", f"--cgroup-parent=/{parent}", *options),
                stdout=log,
                stderr=log,
            )
        try:
            await _answering(docker, daemon, home / "log")
            yield docker
        finally:
            if daemon.returncode is None:
                daemon.terminate()
            await asyncio.wait_for(daemon.wait(), 60)
            remove_cgroups(parent)


async def _answering(docker: Docker, daemon: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            await docker("version")
            return
        except AssertionError:
            assert daemon.returncode is None, f"dockerd ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"dockerd never answered: {log.read_text()[-2000:]}"
            await asyncio.sleep(0.1)


def remove_cgroups(name: str) -> None:
    """The daemon leaves its empty groups behind."""
    for root in {*CGROUPS.glob(f"*/{name}"), *CGROUPS.glob(name)}:
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)

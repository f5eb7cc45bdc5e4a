"""A host for `ext.compose-ssh`: a real sshd and a real docker engine in a network namespace, which nothing
but a pair of virtual cables joins to this one. Both are ended by their ids, and what they made is removed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxer.backends.compose_ssh import ComposeSshSettings, StackHost
from tests.artifacts.engines import BUSYBOX, remove_cgroups, why_no_docker
from tests.support.leftovers import own
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR
from tests.support.tls_keys import make_tls_keys

PORT, TLS_PORT = 2222, 2376
SMALL = "small:1"
_count = itertools.count()
SSHD = "/usr/sbin/sshd"
_SSHD_CONFIG = """
ListenAddress {address}:{port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv DOCKER_HOST=unix://{home}/sock
"""


def require_remote_host() -> None:
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    if why := why_no_docker():
        pytest.skip(why)
    for program in (SSHD, "/usr/bin/docker-compose", "/usr/sbin/ip"):
        if not os.path.exists(program):
            pytest.skip(f"there is no {program}: scripts/system-packages ci")
    if not (IMAGES_DIR / "base" / "image.json").is_file():
        pytest.skip(f"no base image in {IMAGES_DIR}: run `sandboxer image build base`")


@dataclass
class RemoteMachine:
    home: Path
    name: str
    address: str
    running: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def key(self) -> Path:
        return self.home / "key"

    @property
    def known_hosts(self) -> Path:
        return self.home / "known_hosts"

    @property
    def by_ssh(self) -> tuple[str, Path]:
        """Returns where its engine is, as ext.docker is told, and the folder of the keys."""
        return f"ssh://root@{self.address}:{PORT}{self.home}/sock", self.home

    @property
    def by_tls(self) -> tuple[str, Path]:
        return f"tcp://{self.address}:{TLS_PORT}", self.home / "tls"

    def settings(
        self,
        *,
        remote_dir: Path | None = None,
        known_hosts: Path | None = None,
        image: str | None = None,
        ready_within_s: float = 60,
        at_most: int = 20,
        accounts: Sequence[str] = (),
    ) -> ComposeSshSettings:
        host = StackHost(
            address=self.address,
            port=PORT,
            key_file=self.key,
            known_hosts_file=known_hosts or self.known_hosts,
            remote_dir=str(remote_dir or self.home / "r"),
        )
        return ComposeSshSettings(
            host=host,
            images_dir=IMAGES_DIR,
            guest_dir=GUEST_DIR,
            image=image,
            ready_within_s=ready_within_s,
            at_most=at_most,
            accounts=frozenset(accounts),
        )

    async def docker(self, *words: str) -> str:
        env = {**os.environ, "DOCKER_HOST": f"unix://{self.home}/sock"}
        process = await asyncio.create_subprocess_exec(
            "/usr/bin/docker", *words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, f"docker {' '.join(words)}: {said.decode()}"
        return said.decode().strip()

    async def until(self, *words: str, count: int) -> None:
        """Waits until the engine lists so many."""
        async with asyncio.timeout(20):
            listed = await self.docker(*words)
            while len(listed.split()) < count:
                await asyncio.sleep(0.01)
                listed = await self.docker(*words)

    async def until_listeners(self, count: int) -> None:
        """Waits until so many programs listen to the engine's events."""
        async with asyncio.timeout(20):
            listening = await asyncio.to_thread(_listeners, str(self.home))
            while len(listening) != count:
                await asyncio.sleep(0.02)
                listening = await asyncio.to_thread(_listeners, str(self.home))

    async def make_small_image(self) -> str:
        """Makes an image of one static program, which serves as a sandbox and as a service."""
        tree = self.home / "tree"
        for folder in ("bin", "etc", "root", "tmp", "workspace", "run"):
            (tree / folder).mkdir(parents=True)
        shutil.copy(BUSYBOX, tree / "bin/busybox")
        for name in ("sh", "cat", "echo", "httpd", "wget", "sleep", "rm", "test", "mkdir", "id", "dd", "tar"):
            (tree / "bin" / name).symlink_to("busybox")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\n")
        with tarfile.open(self.home / "tree.tar", "w") as tar:
            tar.add(tree, arcname=".")
        await self.docker("import", str(self.home / "tree.tar"), SMALL)
        return SMALL

    async def is_clean(self) -> bool:
        """Says whether the engine has nothing of any sandbox."""
        left = [await self.docker("ps", "-aq"), await self.docker("volume", "ls", "-q")]
        left.append(await self.docker("network", "ls", "-q", "--filter", "type=custom"))
        return not any(left)

    async def start_sshd(self) -> None:
        sshd = await self.begin(SSHD, "-D", "-e", "-f", str(self.home / "sshd_config"), log="sshd.log")
        await _until_it_answers(sshd, self.home / "sshd.log", self.address)

    async def stop_sshd(self) -> None:
        """Ends the daemon and every connection to it."""
        await self.end(self.running.pop())

    async def break_connections(self) -> None:
        """Ends what serves the connections that are open; the daemon takes new ones."""
        for pid in _children_of(self.running[-1].pid):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    async def begin(self, *argv: str, log: str) -> asyncio.subprocess.Process:
        """Starts a program in the host's network; all else is this host's, as its cgroups are."""
        with (self.home / log).open("ab") as to:
            process = await asyncio.create_subprocess_exec(
                "nsenter", f"--net=/run/netns/{self.name}", *argv, stdout=to, stderr=to
            )
        self.running.append(process)
        return process

    async def end(self, process: asyncio.subprocess.Process) -> None:
        children = _children_of(process.pid)
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


@asynccontextmanager
async def remote_machine() -> AsyncIterator[RemoteMachine]:
    require_remote_host()
    # A socket's path may have 107 bytes, and those of sandboxes are long.
    home = own(Path(tempfile.mkdtemp(prefix="rh-", dir="/var/tmp")))
    # A process may have more than one.
    mark = f"{os.getpid()}-{next(_count)}"
    number = zlib.crc32(mark.encode()) % 16_000
    machine = RemoteMachine(home, f"rh{mark}", f"10.213.{number // 64}.{number % 64 * 4 + 2}")
    parent = f"sandboxer-tests-rh-{mark}"
    try:
        _join(machine, f"10.213.{number // 64}.{number % 64 * 4 + 1}")
        _write_keys(machine)
        await machine.begin(
            "dockerd",
            *("--host", f"unix://{home}/sock", "--pidfile", str(home / "pid")),
            *(
                "--host",
                f"tcp://{machine.address}:{TLS_PORT}",
                "--tlsverify",
                "--tlscacert",
                str(home / "tls/ca.pem"),
            ),
            *("--tlscert", str(home / "engine.pem"), "--tlskey", str(home / "engine-key.pem")),
            *("--data-root", str(home / "data"), "--exec-root", str(home / "exec")),
            *("--storage-driver=overlay2", "--ip6tables=false", f"--cgroup-parent=/{parent}"),
            log="dockerd.log",
        )
        await _until_docker_answers(machine)
        await machine.start_sshd()
        yield machine
    finally:
        for process in reversed(machine.running):
            await machine.end(process)
        _part(machine)
        remove_cgroups(parent)
        shutil.rmtree(home, ignore_errors=True)


def _join(machine: RemoteMachine, address: str) -> None:
    name = machine.name
    for words in (
        f"netns add {name}",
        f"link add {name}h type veth peer name {name}r netns {name}",
        f"addr add {address}/30 dev {name}h",
        f"link set {name}h up",
        f"-n {name} addr add {machine.address}/30 dev {name}r",
        f"-n {name} link set {name}r up",
        f"-n {name} link set lo up",
    ):
        subprocess.run(["ip", *words.split()], check=True)


def _part(machine: RemoteMachine) -> None:
    for words in (["netns", "del", machine.name], ["link", "del", f"{machine.name}h"]):
        subprocess.run(["ip", *words], capture_output=True, check=False)


def _write_keys(machine: RemoteMachine) -> None:
    home = machine.home
    make_tls_keys(home, machine.address)
    for name in ("key", "host_key", "other_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(home / name)]
        subprocess.run(argv, check=True)
    machine.known_hosts.write_text(known_host(machine, "host_key"))
    config = _SSHD_CONFIG.format(home=home, address=machine.address, port=PORT)
    (home / "sshd_config").write_text(config)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def known_host(machine: RemoteMachine, key: str) -> str:
    """Returns a line of known hosts that says this is its key."""
    kind, text, _ = (machine.home / f"{key}.pub").read_text().split()
    return f"[{machine.address}]:{PORT} {kind} {text}\n"


def _listeners(home: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[:2] == ["docker", "events"] and any(home in word for word in words):
                found.append(place.name)
    return found


def _children_of(pid: int) -> Sequence[int]:
    try:
        found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [*found, *(below for one in found for below in _children_of(one))]


async def _until_docker_answers(machine: RemoteMachine) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await machine.docker("version")
            except AssertionError:
                assert machine.running[0].returncode is None, (machine.home / "dockerd.log").read_text()[
                    -2000:
                ]
                await asyncio.sleep(0.1)
            else:
                return


async def _until_it_answers(sshd: asyncio.subprocess.Process, log: Path, address: str) -> None:
    async with asyncio.timeout(30):
        while True:
            assert sshd.returncode is None, log.read_text()[-2000:]
            try:
                _, writer = await asyncio.open_connection(address, PORT)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return

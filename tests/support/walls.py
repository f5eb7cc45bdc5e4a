"""One real backend for all attacks, on a state folder of its own, with a small pool.

Skips, with the reason printed, where walls cannot be built: not root, no image, no compiler for the attacks.
Images: SANDBOXER_TEST_IMAGES, or those of the default state folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import Handle, Order, Resources, Trust
from sandboxer.backends.guest import Command, Exit, Guest, Output, Stream
from sandboxer.backends.namespaces import NamespacesBackend, NamespacesSettings, open_backend
from sandboxer.kernel.values import new_id
from sandboxer.wiring.oci import open_oci
from sandboxer.wiring.remembering import RememberingBackend
from tests.support.leftovers import own
from tests.support.oci import require_runtime

ATTACKS = Path(__file__).parents[1] / "walls" / "attacks.c"
GUEST_DIR = Path(__file__).parents[2] / "guest" / "build"
DEFAULT_IMAGES = Path("/var/lib/sandboxer/images")
PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


@dataclass(frozen=True)
class Ran:
    exit: Exit
    stdout: str
    stderr: str

    @property
    def code(self) -> int:
        return self.exit.code


async def collect(guest: Guest, command: Command, timeout_s: float = 30) -> Ran:
    parts = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    async with asyncio.timeout(timeout_s):
        async with await guest.run(command) as process:
            async for item in process.output():
                if isinstance(item, Output):
                    parts[item.stream] += item.data
                else:
                    ended = item
    text = {stream: data.decode(errors="replace") for stream, data in parts.items()}
    return Ran(ended, text[Stream.STDOUT], text[Stream.STDERR])


@dataclass
class Sandbox:
    """A running sandbox as an attacker has it, and its handle as the host has it."""

    backend: NamespacesBackend
    handle: Handle
    order: Order

    @property
    def id(self) -> str:
        return self.handle.sandbox_id

    @property
    def has_own_kernel(self) -> bool:
        """Whether what it asks a kernel for, no kernel of the host's is asked for."""
        return isinstance(self.backend, RememberingBackend)

    @property
    def pid(self) -> int:
        """Of its first process, on the host."""
        return int(str(self.handle.data["pid"]))

    async def guest(self) -> Guest:
        return await self.backend.guest(self.handle)

    async def sh(self, script: str, *, user: str = "root", timeout_s: float = 30) -> Ran:
        command = Command(argv=["/bin/sh", "-c", script], env=PATH, user=user, keep=False)
        return await collect(await self.guest(), command, timeout_s)

    async def run(self, *argv: str, timeout_s: float = 30) -> Ran:
        return await collect(await self.guest(), Command(argv=list(argv), env=PATH, keep=False), timeout_s)

    async def python(self, program: str, timeout_s: float = 30) -> Ran:
        return await self.run("/usr/bin/python3", "-c", program, timeout_s=timeout_s)

    async def put(self, path: str, data: bytes, mode: int = 0o755) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        await (await self.guest()).files.write(path, chunks(), mode=mode)

    async def attack(self, name: str, timeout_s: float = 30) -> str:
        """The verdict of tests/walls/attacks.c, run inside."""
        ran = await self.run("/tmp/attacks", name, timeout_s=timeout_s)
        if ran.exit.signal:
            return f"killed by signal {ran.exit.signal}"
        return ran.stdout.strip()


def images_dir() -> Path:
    return Path(os.environ.get("SANDBOXER_TEST_IMAGES", DEFAULT_IMAGES))


def image_name() -> str:
    folder = images_dir()
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    names = [name for name in names if not name.startswith(".")]
    if not names:
        pytest.skip(f"no image in {folder}: run `sandboxer image build base`, or set SANDBOXER_TEST_IMAGES")
    return "base" if "base" in names else names[0]


@pytest.fixture(scope="session")
def host_ready() -> None:
    if os.geteuid() != 0:
        pytest.skip("walls need root on the host")
    for program in ("launcher", "supervisor"):
        if not (GUEST_DIR / program).is_file():
            pytest.skip(f"{GUEST_DIR / program} is not built: run `make -C guest`")


@pytest.fixture(scope="session")
def settings(host_ready: None) -> Iterator[NamespacesSettings]:
    image_name()
    state = own(Path(tempfile.mkdtemp(prefix="walls-", dir="/var/tmp")))
    yield NamespacesSettings(
        state_dir=state,
        images_dir=images_dir(),
        guest_dir=GUEST_DIR,
        pool_size_mb=1536,
        uid_base=1_000_000_000 + (os.getpid() % 1000) * 65536 * 16,
    )
    shutil.rmtree(state, ignore_errors=True)


@asynccontextmanager
async def opened_walls(settings: NamespacesSettings, kind: str) -> AsyncIterator[NamespacesBackend]:
    """Opens the backend of a kind of wall: those of namespaces, or an OCI runtime's."""
    if kind == "namespaces":
        opening = open_backend(settings)
    else:
        state = settings.state_dir / kind
        opening = open_oci(replace(settings, state_dir=state), runtime=require_runtime(kind))
    async with opening as opened:
        yield opened
        for sandbox_id in await opened.inventory():
            await opened.teardown(sandbox_id)
        pool = opened.dependencies.pool
    pool.unmount()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend(settings: NamespacesSettings) -> AsyncIterator[NamespacesBackend]:
    async with opened_walls(settings, "namespaces") as opened:
        yield opened


Maker = Callable[..., Awaitable[Sandbox]]


def order_for(**limits: float) -> Order:
    resources = Resources(vcpus=1.0, memory_mb=256, disk_mb=128, pids=128)
    return Order(
        sandbox_id=new_id("sbx"),
        image=image_name(),
        trust=Trust.ZERO,
        resources=replace(resources, **limits),  # type: ignore[arg-type]
        hostname="walled",
    )


@pytest.fixture(scope="session")
def attacks(host_ready: None, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """attacks.c, built once outside: the same bytes attack with and without the wall."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on the host to build the attacks with")
    program = tmp_path_factory.mktemp("attacks") / "attacks"
    subprocess.run([compiler, "-static", "-O1", "-o", program, ATTACKS], check=True)
    return program.read_bytes()


@pytest.fixture(scope="session")
def outside(attacks: bytes, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The same attack without the wall, as the host's root. Only for those that harm nothing."""
    program = tmp_path_factory.mktemp("outside") / "attacks"
    program.write_bytes(attacks)
    program.chmod(0o755)

    def attack(name: str) -> str:
        done = subprocess.run([program, name], capture_output=True, text=True, timeout=30, check=False)
        return f"killed by signal {-done.returncode}" if done.returncode < 0 else done.stdout.strip()

    return attack


@pytest_asyncio.fixture(loop_scope="session")
async def make(backend: NamespacesBackend) -> AsyncIterator[Maker]:
    """Sandboxes for one test, gone after it."""
    made: list[str] = []

    async def make_one(**limits: float) -> Sandbox:
        order = order_for(**limits)
        made.append(order.sandbox_id)
        return Sandbox(backend, await backend.provision(order), order)

    yield make_one
    for sandbox_id in made:
        await backend.teardown(sandbox_id)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def attacker(backend: NamespacesBackend, attacks: bytes) -> Sandbox:
    """A sandbox for all attacks that should change nothing."""
    order = order_for()
    sandbox = Sandbox(backend, await backend.provision(order), order)
    await sandbox.put("/tmp/attacks", attacks)
    return sandbox


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def neighbour(backend: NamespacesBackend) -> Sandbox:
    """Another tenant's, which must never notice."""
    order = order_for()
    return Sandbox(backend, await backend.provision(order), order)


async def becomes_true(check: Callable[[], bool], within_s: float = 5.0) -> bool:
    end = time.monotonic() + within_s
    while not check():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


def traces(backend: NamespacesBackend, sandbox_id: str) -> list[str]:
    """Everything on this host that bears the sandbox's name."""
    dependencies = backend.dependencies
    found = [
        str(path)
        for path in (dependencies.boxes.folder(sandbox_id), dependencies.pool.disk(sandbox_id))
        if path.exists()
    ]
    found += [f"cgroup {name}" for name in dependencies.cgroups.ids() if name == sandbox_id]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if sandbox_id in line]
    found += ["known"] * (sandbox_id in dependencies.known) + ["lock"] * (sandbox_id in dependencies.locks)
    return found

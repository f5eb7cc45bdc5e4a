"""Starts sandboxes by the command line of an OCI runtime.

`guest/oci` (the stager) makes the cgroups and the disk, mounts the sandbox's tree in a mount namespace of its
own and becomes the runtime, which goes when the sandbox runs. What it left is in the sandbox's folder,
`run/<id>/oci`:

    config.json   what the runtime was told
    state/        what the runtime remembers
    secret        what its supervisor wants to hear first, where it is dialled by a port
    log           what runtime and supervisor said
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.launch import Launched, LaunchOrder, answer_fields, failure_of
from sandboxer.backends.oci.bundle import RuntimeKind, config
from sandboxer.backends.oci.control import limit_processes
from sandboxer.backends.shared import held, opened, started_at, text_of
from sandboxer.kernel.errors import ProvisionFailed, Unavailable
from sandboxer.kernel.values import value_class

LAUNCH_TIMEOUT_S = 60.0
ANSWER_BYTES = 16384
SECRET_BYTES = 32
# Of the log, in an error.
_LAST_WORDS = 400


@value_class
class OciSettings:
    kind: RuntimeKind
    # The runtime, by its path.
    program: Path
    run_dir: Path
    guest_dir: Path
    # Where the supervisor is kept for sandboxes to see.
    programs_dir: Path
    # Below every cgroup hierarchy.
    cgroup_parent: str
    # What ran in sandboxes that were kept with their memory; see `MemoryFolder`.
    memory_dir: Path

    def bundle(self, sandbox_id: str) -> Path:
        return self.run_dir / sandbox_id / "oci"

    def controls(self, sandbox_id: str) -> list[Path]:
        """Returns where gVisor may put its control socket: a long path does not fit into an address."""
        folders = (self.bundle(sandbox_id) / "state", Path("/var/run"), Path("/run"), Path("/tmp"))
        return [folder / f"runsc-{sandbox_id}.sock" for folder in folders]

    def control(self, sandbox_id: str) -> Path:
        places = self.controls(sandbox_id)
        return next((place for place in places if place.exists()), places[0])

    def argv(self, sandbox_id: str) -> list[str]:
        """Begins a command line of the runtime about this sandbox."""
        folder = self.bundle(sandbox_id)
        own = ["--root", str(folder / "state"), "--log", str(folder / "log")]
        if self.kind is RuntimeKind.RUNSC:
            # Its network is the kernel's it brings, with `lo` alone; its disk is the one we mount.
            own += ["--network=sandbox", "--overlay2=none", "--ignore-cgroups", "--platform=systrap"]
            own += ["--host-uds=none", "--cpu-num-from-quota"]
            # Only for the supervisor, until it has led connections (`bundle.SETTLING`).
            own += ["--net-raw"]
        if self.kind is RuntimeKind.CRUN:
            # It is in the cgroups of the sandbox already.
            own += ["--cgroup-manager=disabled"]
        return [str(self.program), *own]


class OciStarter:
    def __init__(self, settings: OciSettings, held_fds: tuple[int, ...]) -> None:
        """`held_fds`: locks that whatever starts a sandbox holds, as long as it does."""
        self._settings = settings
        self._held_fds = held_fds

    async def start(self) -> None:
        await asyncio.to_thread(self._bring_supervisor)

    async def launch(self, order: LaunchOrder) -> Launched:
        began = time.perf_counter()
        await asyncio.to_thread(self._describe, order)
        bundle = self._settings.bundle(order.tag)
        argv = [*self._settings.argv(order.tag), *self._verb(order), "--detach", "--bundle", str(bundle)]
        await self._run_staged(order, [*argv, "--pid-file", str(bundle / "pid"), order.tag])
        if self._memory(order) is not None:
            # What goes on has the limit that it had.
            await asyncio.to_thread(limit_processes, self._settings.control(order.tag), order.pids)
        pid = int((bundle / "pid").read_text())
        if (started := started_at(pid)) is None:
            raise ProvisionFailed(step="boot", why=self._last_words(order.tag) or "the sandbox ended at once")
        return Launched(pid=pid, started=started, timings_ms={"runtime": (time.perf_counter() - began) * 1e3})

    def _verb(self, order: LaunchOrder) -> list[str]:
        if (memory := self._memory(order)) is not None:
            # Paths of the host are others than those of the sandbox it was.
            return ["--restore-spec-validation=ignore", "restore", "--image-path", str(memory)]
        return ["run"] if self._settings.kind.has_own_kernel else ["run", "--preserve-fds", "1"]

    def _memory(self, order: LaunchOrder) -> Path | None:
        """Returns where what it goes on with is kept: what ran in its origin, or in itself, if that was kept
        too.
        """
        kept = self._settings.memory_dir / (order.origin or order.tag)
        return kept if kept.is_dir() else None

    async def _run_staged(self, order: LaunchOrder, argv: list[str]) -> None:
        """Runs a command of the runtime where the sandbox's tree is mounted. Raises ProvisionFailed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        bundle = self._settings.bundle(order.tag)
        stager = str(self._settings.guest_dir / "stager")
        heard, said = os.pipe2(os.O_CLOEXEC)
        with (
            ours,
            held(heard),
            opened(bundle / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode=0o600) as log,
            opened(bundle / "secret", os.O_RDONLY | os.O_CLOEXEC) as secret,
        ):
            with theirs, held(said):
                process = await asyncio.create_subprocess_exec(
                    stager,
                    str(theirs.fileno()),
                    str(bundle),
                    *argv,
                    stdin=secret,
                    stdout=said,
                    stderr=log,
                    pass_fds=(theirs.fileno(), *self._held_fds),
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                    start_new_session=True,
                )
            ours.setblocking(False)
            try:
                async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                    ours.send(order.encode())
                    # Nothing: it has become the runtime, whose exit tells the rest.
                    answer = await asyncio.get_running_loop().sock_recv(ours, ANSWER_BYTES)
                    code = await process.wait()
                    # What goes on where it was listens already, and says nothing.
                    if not code and self._settings.kind.has_own_kernel and self._memory(order) is None:
                        await _readable(heard)
            except TimeoutError:
                process.kill()
                raise ProvisionFailed(step="runtime", why=f"not done within {LAUNCH_TIMEOUT_S:g} s") from None
        if answer:
            raise failure_of(answer_fields(answer))
        if code:
            why = self._last_words(order.tag) or f"it exited with {code}"
            raise ProvisionFailed(step="runtime", why=f"{self._settings.kind}: {why}")

    async def ping(self, *, within_s: float) -> None:
        for program in (self._settings.program, self._settings.guest_dir / "stager"):
            if not os.access(program, os.X_OK):
                raise Unavailable(why=f"{program} cannot be run")

    async def replace(self) -> None:
        """Nothing stays between two sandboxes that could hang."""

    async def close(self) -> None:
        """The same: nothing to close."""

    def forget(self, sandbox_id: str) -> None:
        bundle = self._settings.bundle(sandbox_id)
        if not bundle.is_dir():
            return
        if self._settings.kind.has_own_kernel:
            for place in self._settings.controls(sandbox_id):
                place.unlink(missing_ok=True)
        else:
            argv = [*self._settings.argv(sandbox_id), "delete", "--force", sandbox_id]
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
            _remove_cgroups(Path(self._settings.cgroup_parent) / sandbox_id)
        shutil.rmtree(bundle, ignore_errors=True)

    def _describe(self, order: LaunchOrder) -> None:
        bundle = self._settings.bundle(order.tag)
        shutil.rmtree(bundle, ignore_errors=True)
        bundle.mkdir(mode=0o700)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        described = config(
            self._settings.kind,
            # No more than we have: root without capabilities may not raise it.
            replace(order, open_files=min(order.open_files, most)),
            bundle=bundle,
            programs=self._settings.programs_dir,
            cgroup=f"/{self._settings.cgroup_parent}/{order.tag}/guest",
            masks=order.masks,
        )
        (bundle / "config.json").write_text(json.dumps(described))
        memory = self._memory(order)
        secret = secrets.token_bytes(SECRET_BYTES) if memory is None else (memory / "secret").read_bytes()
        (bundle / "secret").write_bytes(secret)

    def _bring_supervisor(self) -> None:
        """Keeps a copy that sandboxes can see: a running one keeps the program it has."""
        folder = self._settings.programs_dir
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = folder / f".new-{os.getpid()}"
        shutil.copyfile(self._settings.guest_dir / "supervisor", fresh)
        fresh.chmod(0o755)
        fresh.rename(folder / "supervisor")

    def _last_words(self, sandbox_id: str) -> str:
        try:
            said = (self._settings.bundle(sandbox_id) / "log").read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""
        return said[-_LAST_WORDS:]


async def _readable(fd: int) -> None:
    """Waits until the supervisor says that it listens, or nobody is left who could."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(fd, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(fd)


def _remove_cgroups(place: Path) -> None:
    """Removes the folders that a runtime made in hierarchies of v1 for no limit of ours, and left."""
    for line in text_of("/proc/mounts").splitlines():
        _, where, kind = line.split()[:3]
        if kind == "cgroup":
            for folder in (place, place.parent):
                with contextlib.suppress(OSError):
                    os.rmdir(Path(where) / folder)

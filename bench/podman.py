"""The usual way: `podman run --rm` on the same image, with no more flags than this host forces on it.

The image tree is imported into podman once per run. `--network=none` because nothing else here has a network
either. Some hosts refuse podman's default rlimits, and crun refuses hosts with cgroup v1 and v2 side by side:
then the limits are named, and podman runs in a private mount namespace that hides the v2 half. The timed
process lives in that namespace already, so entering it costs podman nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bench.bwrap import life_ms

TAG = "localhost/sandboxer-bench"
UNIFIED = "/sys/fs/cgroup/unified"
VARIANTS = (
    ("--network=none",),
    ("--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"),
    ("--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--cgroups=disabled"),
)


class Podman:
    """A process beside us that times one `podman run --rm` per line it is sent."""

    def __init__(self, ask: IO[str], answer: IO[str]) -> None:
        self._ask = ask
        self._answer = answer
        self.flags = self._line()

    def life_ms(self) -> float:
        print("go", file=self._ask, flush=True)
        return float(self._line())

    def _line(self) -> str:
        line = self._answer.readline().strip()
        if not line or line.startswith("!"):
            raise PodmanUnusable(f"podman run: {line[1:] or 'no answer'}")
        return line


class PodmanUnusable(Exception):
    """Podman cannot be compared with here; says why."""


@contextmanager
def open_podman(image: Path) -> Iterator[Podman]:
    if shutil.which("podman") is None:
        raise PodmanUnusable("not installed (apt-get install podman)")
    # Two benches on one host must not remove each other's image.
    tag = f"{TAG}:{os.getpid()}"
    try:
        _import(image, tag)
        timer = subprocess.Popen(
            ["unshare", "--mount", sys.executable, "-m", "bench.podman", tag],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        try:
            assert timer.stdin is not None
            assert timer.stdout is not None
            yield Podman(timer.stdin, timer.stdout)
        finally:
            timer.communicate()
    finally:
        subprocess.run(["podman", "rmi", "-f", tag], capture_output=True, check=False)


def _import(image: Path, tag: str) -> None:
    tar = subprocess.Popen(["tar", "-C", str(image), "-c", "."], stdout=subprocess.PIPE)
    assert tar.stdout is not None
    try:
        done = subprocess.run(
            ["podman", "import", "-q", "-", tag],
            stdin=tar.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        # Without a reader it ends; with our copy of the pipe open it would wait for ever.
        tar.stdout.close()
        tar.wait()
    if done.returncode:
        raise PodmanUnusable(f"podman import: {done.stderr.strip()}")


def _working_argv(tag: str) -> list[str]:
    """The first variant that says hi; hides the v2 half of a hybrid host only if none does."""
    program = shutil.which("podman") or "podman"
    for is_hidden in (False, True):
        if is_hidden and subprocess.run(["umount", UNIFIED], capture_output=True, check=False).returncode:
            break
        for flags in VARIANTS:
            argv = [program, "run", "--rm", *flags, tag, "/bin/echo", "hi"]
            tried = subprocess.run(argv, capture_output=True, text=True, check=False)
            if tried.stdout == "hi\n":
                print(" ".join(flags) + (" (cgroup v2 half hidden)" if is_hidden else ""), flush=True)
                return argv
    raise RuntimeError(tried.stderr.strip())


def _serve(tag: str) -> None:
    """Runs in the private mount namespace: one timing per line, until stdin ends."""
    try:
        argv = _working_argv(tag)
    except RuntimeError as error:
        print("!" + str(error).replace("\n", " "), flush=True)
        return
    for _ in sys.stdin:
        print(life_ms(argv), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    _serve(sys.argv[1])

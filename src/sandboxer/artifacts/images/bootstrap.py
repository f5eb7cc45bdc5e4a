"""Unpacks a recipe's packages with mmdebstrap, and ends all of it when we are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from contextlib import suppress
from pathlib import Path

from sandboxer.artifacts.images.build_network import open_build_network
from sandboxer.artifacts.images.complaints import explain
from sandboxer.artifacts.images.mirrors import Mirrors
from sandboxer.artifacts.images.progress import Progress, ProgressReader, Report
from sandboxer.artifacts.images.recipe import Recipe
from sandboxer.kernel.errors import ImageBuildFailed

_TAIL = 40


def bootstrap(recipe: Recipe, mirrors: Mirrors, rootfs: Path, lock: int, progress: Report) -> None:
    """Fill `rootfs`, with nothing but the mirrors in reach. The process inherits `lock`, and so holds it even
    if we are killed."""
    options = _host_acquire_options()
    with open_build_network(mirrors, proxies_of(options)) as network:
        acquire = [*(line for line in options if "::proxy" not in line.split(" ")[0].lower())]
        acquire += [f'Acquire::{scheme}::Proxy "{network.proxy}"' for scheme in ("http", "https")]
        command = network.entering(bootstrap_command(recipe, mirrors, rootfs, acquire))
        _run(command, (lock, network.namespace), mirrors, progress)


def _run(command: list[str], inherited: tuple[int, ...], mirrors: Mirrors, progress: Report) -> None:
    reader = ProgressReader()
    tail: deque[str] = deque(maxlen=_TAIL)
    progress(Progress("starting", 0.0))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp"},
        start_new_session=True,  # Ctrl-C comes to us; we end the whole group
        pass_fds=inherited,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line.rstrip())
            if (step := reader.read(line)) is not None:
                progress(step)
        status = process.wait()
    finally:
        _end(process)
    if status != 0:
        raise ImageBuildFailed(why=explain(list(tail), mirrors))


def _end(process: subprocess.Popen[str]) -> None:
    for number, patience in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def bootstrap_command(recipe: Recipe, mirrors: Mirrors, rootfs: Path, acquire: list[str]) -> list[str]:
    """The mmdebstrap call. Options for apt given here live only as long as the build."""
    command = ["mmdebstrap", "--verbose", "--mode=root", "--format=directory", "--variant=minbase"]
    command += [f"--components={','.join(mirrors.building[0].components)}"]
    command += [f"--include={','.join(recipe.packages)}"]
    command += [f"--aptopt={option}" for option in ('APT::Install-Recommends "false"', *acquire)]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.exclude]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in recipe.include]
    # Packages with alternatives link their man pages, and fail where a left-out folder is missing.
    pages = " ".join(f'"$1/usr/share/man/man{number}"' for number in range(1, 9))
    command += [f"--essential-hook=mkdir -p {pages}"]
    if recipe.user is not None:
        name, uid = recipe.user
        add = f'chroot "$1" useradd --create-home --user-group --uid {uid} --shell /bin/bash {name}'
        command += [f"--customize-hook={add}"]
    return [*command, mirrors.suite, str(rootfs), *(source.line() for source in mirrors.building)]


def _host_acquire_options() -> list[str]:
    """The host's proxy and date settings: without them a build could fail where `apt-get install` works."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    wanted = ("::proxy", "check-valid-until", "::retries")
    lines = [
        line.rstrip(";") for line in dump.splitlines() if line.startswith("Acquire::") and '""' not in line
    ]
    return [line for line in lines if any(word in line.split(" ")[0].lower() for word in wanted)]


def proxies_of(options: list[str]) -> dict[str, str]:
    """`Acquire::http::Proxy "http://…"` as `{"http::proxy": "http://…"}`."""
    pairs = (line.removeprefix("Acquire::").partition(" ") for line in options)
    return {name.lower(): value.strip('"') for name, _, value in pairs if "::proxy" in name.lower()}

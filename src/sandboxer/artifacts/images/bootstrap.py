"""Unpacks a recipe's packages with mmdebstrap, and ends all of its processes on an interrupt. Progress, and
the reason of a failure in words an operator can act on, are read from the output of mmdebstrap and apt.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandboxer.artifacts.images.build_network import open_build_network
from sandboxer.artifacts.images.recipe import Mirrors, Recipe
from sandboxer.kernel.errors import ImageBuildFailed
from sandboxer.kernel.values import brief_value_class

_UNREACHABLE = re.compile(
    r"Temporary failure resolving|Could not resolve|Could not connect|Connection (?:timed out|refused|failed)"
    r"|Network is unreachable|Unable to connect"
)
_UNKNOWN_PACKAGE = re.compile(r"Unable to locate package (\S+)|Package (\S+) has no installation candidate")
_UNSIGNED = re.compile(r"NO_PUBKEY|is not signed|signatures couldn't be verified")
_PASSWORD = re.compile(r"//[^/@]*@")
_SHOWN = 6


def explain(tail: list[str], mirrors: Mirrors) -> str:
    text = "\n".join(tail)
    uris = (_PASSWORD.sub("//", source.uri) for source in mirrors.building)
    hosts = ", ".join(dict.fromkeys(uris))
    if "No space left on device" in text:
        return "the disk is full; free some space and build again"
    if _UNREACHABLE.search(text):
        return f"no network: cannot reach the package mirrors ({hosts}); check /etc/apt and the network"
    if unknown := _UNKNOWN_PACKAGE.search(text):
        package = unknown[1] or unknown[2]
        return f"{mirrors.distribution} {mirrors.suite} has no package {package}; correct the recipe"
    if _UNSIGNED.search(text):
        return (
            f"the mirror's signature cannot be checked; "
            f"install {mirrors.distribution}-archive-keyring (Ubuntu: ubuntu-keyring)"
        )
    last = [line for line in tail if line.strip()][-_SHOWN:]
    return "mmdebstrap failed; its last words: " + " | ".join(last)


_NEW = re.compile(r"(\d+) newly installed")
_STEP = re.compile(r"(?:Get:\d+|Unpacking|Setting up) (.*)")
# Each package of a stage is fetched, unpacked and set up.
_STEPS_PER_PACKAGE = 3

# What mmdebstrap announces → our phase, and the measured share of the build that is done when it begins.
_PHASES = (
    ("running apt-get update", "package lists", 0.0),
    ("downloading packages with apt", "base system", 0.05),
    ("extracting archives", "base system", 0.12),
    ("installing essential packages", "base system", 0.18),
    ("installing remaining packages", "packages", 0.30),
    ("cleaning package lists", "cleaning", 0.95),
)


@brief_value_class
class Progress:
    phase: str
    fraction: float  # of the whole build, 0 to 1
    detail: str = ""


Report = Callable[[Progress], None]


class ProgressReader:
    """Turns output lines into progress that never goes back."""

    def __init__(self) -> None:
        self._phase = "starting"
        self._begins = 0.0
        self._ends = _PHASES[0][2]
        self._expected = 0
        self._steps = 0

    def read(self, line: str) -> Progress | None:
        for index, (words, phase, begins) in enumerate(_PHASES):
            if line.startswith("I: ") and words in line:
                self._phase, self._begins, self._expected, self._steps = phase, begins, 0, 0
                self._ends = _PHASES[index + 1][2] if index + 1 < len(_PHASES) else 0.97
                return Progress(phase, begins)
        if new := _NEW.search(line):
            self._expected = int(new[1]) * _STEPS_PER_PACKAGE
        if not (step := _STEP.match(line)):
            return None
        self._steps += 1
        share = min(self._steps / self._expected, 1.0) if self._expected else 0.0
        return Progress(self._phase, self._begins + (self._ends - self._begins) * share, _subject(step[0]))


def _subject(line: str) -> str:
    """Returns the package of a line: bash for `Get:7 http://… bookworm/main amd64 bash amd64 5.2 [1 kB]` and
    for `Unpacking bash (5.2)`.
    """
    words = line.split()
    if words[0].startswith("Get:"):
        return words[4] if len(words) > 7 else words[2]
    return words[2] if words[0] == "Setting" else words[1]


_TAIL = 40


def bootstrap(recipe: Recipe, mirrors: Mirrors, rootfs: Path, lock: int, progress: Report) -> None:
    """Fills `rootfs`, with only the mirrors in reach. The process inherits `lock`, and so holds it even if
    this server is killed.
    """
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
    """Returns the mmdebstrap command. Options for apt given here apply to the build only."""
    command = ["mmdebstrap", "--verbose", "--mode=root", "--format=directory", "--variant=minbase"]
    command += [f"--components={','.join(mirrors.building[0].components)}"]
    command += [f"--include={','.join(recipe.packages)}"]
    command += [f"--aptopt={option}" for option in ('APT::Install-Recommends "false"', *acquire)]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.exclude]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in recipe.include]
    # Packages with alternatives link their man pages, and fail if an excluded folder is missing.
    pages = " ".join(f'"$1/usr/share/man/man{number}"' for number in range(1, 9))
    command += [f"--essential-hook=mkdir -p {pages}"]
    if recipe.user is not None:
        name, uid = recipe.user
        add = f'chroot "$1" useradd --create-home --user-group --uid {uid} --shell /bin/bash {name}'
        command += [f"--customize-hook={add}"]
    return [*command, mirrors.suite, str(rootfs), *(source.line() for source in mirrors.building)]


def _host_acquire_options() -> list[str]:
    """Returns the host's proxy and date settings: without them a build could fail where `apt-get install`
    works.
    """
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    wanted = ("::proxy", "check-valid-until", "::retries")
    lines = [
        line.rstrip(";") for line in dump.splitlines() if line.startswith("Acquire::") and '""' not in line
    ]
    return [line for line in lines if any(word in line.split(" ")[0].lower() for word in wanted)]


def proxies_of(options: list[str]) -> dict[str, str]:
    """Returns `Acquire::http::Proxy "http://…"` as `{"http::proxy": "http://…"}`."""
    pairs = (line.removeprefix("Acquire::").partition(" ") for line in options)
    return {name.lower(): value.strip('"') for name, _, value in pairs if "::proxy" in name.lower()}

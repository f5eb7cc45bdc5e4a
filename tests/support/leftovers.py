"""What this test run leaves on the host when a test ends badly: servers, sandboxes, mounted pools, loops.

A folder is ours if the run made it (`own`); nothing else is ever looked at, since other runs and a real
platform may be at work beside us. Temporary files of tests and of what they start lie in such a folder too:
processes that are killed on purpose never remove theirs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path

import pytest

from bench.census import cgroup_roots

_TEMPORARY = "sbx-tests-"  # short: sockets lie in it, and their paths hold 107 bytes
_own: list[Path] = []


def own(folder: Path) -> Path:
    """Whatever is found in use below it when the run is over is ended and removed."""
    _own.append(folder.resolve())
    return folder


@contextmanager
def own_temporary_files() -> Iterator[None]:
    """Whoever wants a temporary file meanwhile, here or in a process begun from here, gets it in a folder
    that goes with the run. Servers of other users have theirs in it as well."""
    folder = own(Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{os.getpid()}-")))
    folder.chmod(0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
    # Or it would look for its folder when the process ends, and complain.
    util._run_finalizers(-100)  # type: ignore[attr-defined]
    _clear([folder.resolve()])
    shutil.rmtree(folder, ignore_errors=True)


def clear_dead_runs(root: Path) -> list[str]:
    """Of runs that were killed: a mounted pool keeps pytest from removing its folder, and its gigabytes stay.

    `root`: where pytest has the folders of all runs; temporary files lie beside it.
    """
    runs = [*(root.iterdir() if root.is_dir() else ()), *root.parent.glob(f"{_TEMPORARY}*")]
    dead = [folder.resolve() for folder in runs if _is_dead(folder)]
    found = _clear(dead) if dead else []
    for folder in dead:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_dead(run: Path) -> bool:
    """pytest calls a folder garbage when it begins to remove it; until then its lock names the process. That
    of a folder with temporary files is part of its name."""
    if run.name.startswith("garbage-"):
        return True
    named = run.name.removeprefix(_TEMPORARY).partition("-")[0]
    try:
        pid = int(named if run.name.startswith(_TEMPORARY) else (run / ".lock").read_text())
    except (OSError, ValueError):
        return False
    return not Path(f"/proc/{pid}").exists()


def clear() -> list[str]:
    """What was left, in words; now it is gone."""
    return _clear(_own)


def _clear(folders: list[Path]) -> list[str]:
    found = [*_end_processes(folders), *_end_sandboxes(folders), *_unmount(folders), *_detach(folders)]
    for state in _state_folders(folders):
        for root in cgroup_roots(state):
            for folder, _, _ in os.walk(root, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
    return found


def _is_below(path: str, folders: list[Path]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _end_processes(folders: list[Path]) -> list[str]:
    """Servers and drivers, which were told their state folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(_is_below(word.rpartition("=")[2], folders) for word in words):
                os.kill(int(entry.name), signal.SIGKILL)
                found.append(f"process {' '.join(words)[:200]}")
    return found


def _end_sandboxes(folders: list[Path]) -> list[str]:
    found = []
    for state in _state_folders(folders):
        for root in cgroup_roots(state):
            pids = {pid for tasks in root.rglob("cgroup.procs") for pid in _lines(tasks)}
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            found += [f"{len(pids)} processes in the sandboxes of {state}"] if pids else []
            # What was frozen dies when it is thawed.
            for freezer in root.rglob("freezer.state"):
                with contextlib.suppress(OSError):
                    freezer.write_text("THAWED")
    return found


def _unmount(folders: list[Path]) -> list[str]:
    found = []
    for line in reversed(_lines(Path("/proc/self/mountinfo"))):
        target = line.split(" ")[4]
        if _is_below(target, folders):
            found.append(f"mount {target}")
            subprocess.run(["umount", "-l", "-d", target], check=False)
    return found


def _detach(folders: list[Path]) -> list[str]:
    found = []
    deadline = time.monotonic() + 5
    while ours := [
        loop for loop in Path("/sys/block").glob("loop*/loop/backing_file") if _lies_in(loop, folders)
    ]:
        found += [f"loop {loop.parts[3]}" for loop in ours if time.monotonic() > deadline]
        for loop in ours:
            subprocess.run(["losetup", "-d", f"/dev/{loop.parts[3]}"], check=False, capture_output=True)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return found


def _lies_in(backing: Path, folders: list[Path]) -> bool:
    return any(_is_below(line.removesuffix(" (deleted)"), folders) for line in _lines(backing))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _state_folders(folders: list[Path]) -> list[Path]:
    """Those of platforms, which lie at most two folders below what a test was given."""
    return [
        pool.parent
        for folder in folders
        for depth in ("pool", "*/pool", "*/*/pool")
        for pool in folder.glob(depth)
    ]

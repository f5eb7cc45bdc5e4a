"""Runs the steps one after the other, and writes down what is known before and after each act.

A run is one file, mode 0600, replaced as a whole: whatever ends this process, the next one goes on from
there. Who holds the file's lock runs it. Inside a child this module is the program.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandboxer.sdk.agent.acts import Surroundings, act
from sandboxer.sdk.agent.line import HeldUp, Line
from sandboxer.sdk.agent.progress import End, Progress, after_end, from_json, report, to_json
from sandboxer.sdk.agent.steps import Kept, advance, demand_before, is_stopped, resumed

# What a child needs to do the same; all of it is of Python's own library.
PACKED = (
    "sandboxer/__init__.py",
    "sandboxer/sdk/__init__.py",
    "sandboxer/sdk/signed_texts.py",
    *(
        f"sandboxer/sdk/agent/{name}.py"
        for name in ("__init__", "acts", "line", "loop", "payment", "progress", "steps")
    ),
)
_MAIN = "from sandboxer.sdk.agent.loop import main\nmain()\n"
# The same bytes whenever it is packed.
_LONG_AGO = (2020, 1, 1, 0, 0, 0)
REPORT = ".report"
# How often the end of what is left over is tried when a run is over.
TIDY_ROUNDS = 5
Watcher = Callable[[Progress], None]


class HeldElsewhere(Exception):
    """Another process runs this file at this moment."""


class UnreadableState(Exception):
    """The file is there and is not the progress of a run."""


class StateFile:
    """The progress of one run on disk."""

    def __init__(self, path: Path) -> None:
        # Under whatever name: its lock and its content are those of one file.
        self.path = path.resolve()

    def read(self) -> Progress | None:
        """Returns what is kept; None if nothing is. Raises UnreadableState."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return from_json(json.loads(content))
        except json.JSONDecodeError:
            raise UnreadableState(f"{self.path} is not the file of a run: it is no JSON") from None
        except (ValueError, RecursionError) as error:
            raise UnreadableState(f"{self.path} is not the file of a run: {error}") from None

    def write(self, progress: Progress) -> None:
        write_whole(self.path, json.dumps(to_json(progress), indent=1))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the file's lock. Raises HeldElsewhere."""
        fcntl: Any = importlib.import_module("fcntl")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldElsewhere(f"another process runs {self.path}") from None
            yield
        finally:
            os.close(lock)


def write_whole(path: Path, text: str) -> None:
    """Replaces a file as a whole, on disk before it returns."""
    new = path.with_name(f".{path.name}.new")
    # Of a write that was broken off, or laid there for our secrets by somebody else.
    new.unlink(missing_ok=True)
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(made, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def run(
    file: StateFile,
    progress: Progress,
    around: Surroundings,
    *,
    watch: Watcher = lambda progress: None,
    pause: Callable[[float], None] = time.sleep,
) -> Progress:
    """Goes on until the run is over or needs somebody. The caller holds the file's lock."""
    progress = resumed(progress, now=around.now())
    file.write(progress)
    watch(progress)
    while progress.end is None and not is_stopped(progress):
        if progress.trouble is not None:
            pause(max(progress.trouble.not_before - around.now(), 0.0))
        if not progress.leftovers:
            demand_before(progress)
        outcome = act(around, progress)
        changed = advance(progress, outcome, now=around.now())
        if changed != progress:
            file.write(changed)
            watch(changed)
        progress = changed
        if isinstance(outcome, Kept) and outcome.pause_s:
            pause(outcome.pause_s)
    return _tidied(file, progress, around, pause)


def _tidied(
    file: StateFile, progress: Progress, around: Surroundings, pause: Callable[[float], None]
) -> Progress:
    """Ends what the run made and has no use for; what cannot be ended now ends with its time."""
    if progress.end is None:
        return progress
    for number in range(TIDY_ROUNDS):
        if not progress.leftovers:
            break
        try:
            first = progress.leftovers[0]
            reply = around.line(progress).ask("DELETE", f"/v1/sandboxes/{first}", also=(404,))
            spent = reply.json.get("spent_sats") if reply.status < 400 else None
        except HeldUp:
            pause(0.2 * 2**number)
            continue
        progress = after_end(progress, first, spent)
        file.write(progress)
    return progress


def packed() -> bytes:
    """Returns the loop as one file that Python runs; from inside one, that file itself."""
    loader = globals().get("__loader__")
    if (archive := getattr(loader, "archive", None)) is not None:
        return Path(archive).read_bytes()
    root = Path(__file__).resolve().parents[3]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name in PACKED:
            made.writestr(zipfile.ZipInfo(name, _LONG_AGO), (root / name).read_bytes(), zipfile.ZIP_DEFLATED)
        made.writestr(zipfile.ZipInfo("__main__.py", _LONG_AGO), _MAIN)
    return content.getvalue()


def _inside_line(progress: Progress) -> Line:
    place = progress.place
    socket_path = None if place is None else place.socket
    return Line("http://localhost", socket_path=socket_path, is_inside=True)


def main() -> None:
    """Runs the file that is named, in a child; its report lies beside it afterwards."""
    # Ended from outside, it must not take the time to explain.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    file = StateFile(Path(sys.argv[1]))
    with file.alone():
        kept = file.read()
        if kept is None:
            raise SystemExit(f"there is nothing to run in {file.path}")
        around = Surroundings(line=_inside_line, archive=packed, now=time.time)
        progress = run(file, kept, around)
        write_whole(file.path.with_name(file.path.name + REPORT), json.dumps(report(progress)))
    raise SystemExit(0 if progress.end is End.DONE else 1)


if __name__ == "__main__":
    main()

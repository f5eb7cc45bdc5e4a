"""Keeps what runs behind gVisor: its whole state, as gVisor writes it (`runsc checkpoint`), in a folder named
as what it is kept with: a kept disk, or a sandbox that is stopped until it goes on. Everything here blocks:
callers run it in a thread.

    <id>/            a whole state, and beside it
        secret       what its supervisor wants to hear first: who restores it speaks with the same one
        about.json   what can restore it
    .new-<id>/       one that is being written; a crash leaves it, and the next start removes it
    .gone-<id>/      one that is being removed; the same
    .still-<id>      this sandbox stands still only for as long as it is saved
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from sandboxer.backends.contract import Order
from sandboxer.backends.oci.starter import OciSettings
from sandboxer.kernel.errors import Conflict, InvalidRequest, NoCapacity, Unavailable
from sandboxer.kernel.values import value_class

# A gigabyte of memory takes some seconds on a slow disk.
SAVE_TIMEOUT_S = 300.0
# What the host's disk keeps free beside a state: databases and logs are on it too.
SPARED_BYTES = 512 * 1024 * 1024
# How long gVisor may take to let go of lines whose other end is gone, and what it says meanwhile.
LET_GO_S = 5.0
_OPEN_LINE = "waiter.ChannelNotifier"
NEW, GONE, STILL = ".new-", ".gone-", ".still-"


@value_class
class Saved:
    """What is known of a state beside it."""

    # The version of the runtime that wrote it. Others need not understand it.
    runtime: str
    # What the sandbox might use.
    memory_mb: int


class MemoryFolder:
    def __init__(self, settings: OciSettings, runtime: str) -> None:
        """`runtime`: its version."""
        self._settings = settings
        self._runtime = runtime
        self._path = settings.memory_dir
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, sandbox_id: str, name: str, *, memory_mb: int, expected_bytes: int) -> int:
        """Writes the state of a sandbox that stands still, and leaves it standing. It counts as kept once it
        is settled. Returns its bytes.

        Raises Conflict for a used name and NoCapacity before anything is written, and Unavailable; nothing
        is left then.
        """
        if self.has(name):
            raise Conflict(why=f"{name} exists already")
        if shutil.disk_usage(self._path).free < expected_bytes + SPARED_BYTES:
            raise NoCapacity(resource="disk", why="the host's disk has no room for what runs in it")
        place = self._path / f"{NEW}{name}"
        self.drop_new(name)
        place.mkdir(mode=0o700)
        argv = [*self._settings.argv(sandbox_id), "checkpoint", "--leave-running", "--compression=none"]
        try:
            self._save_now([*argv, "--image-path", str(place), sandbox_id], place)
            shutil.copyfile(self._settings.bundle(sandbox_id) / "secret", place / "secret")
            saved = {"runtime": self._runtime, "memory_mb": memory_mb}
            (place / "about.json").write_text(json.dumps(saved))
            return _bytes_of(place)
        except BaseException:
            self.drop_new(name)
            raise

    def drop_new(self, name: str) -> None:
        """Removes what was saved and not settled."""
        shutil.rmtree(self._path / f"{NEW}{name}", ignore_errors=True)

    def settle(self, name: str) -> None:
        """What was saved last takes this name, in one step."""
        os.rename(self._path / f"{NEW}{name}", self._path / name)

    def lend(self, name: str, other: str) -> None:
        """Gives a state to a stopped sandbox, or a kept disk, too: both share its bytes."""
        place = self._path / f"{NEW}{other}"
        self.drop(other)
        place.mkdir(mode=0o700)
        for file in (self._path / name).iterdir():
            os.link(file, place / file.name)
        self.settle(other)

    def has(self, name: str) -> bool:
        return (self._path / name).is_dir()

    def size(self, name: str) -> int:
        """Returns the bytes of a state; 0 for none."""
        try:
            return _bytes_of(self._path / name)
        except FileNotFoundError:
            return 0

    def check(self, name: str, order: Order) -> None:
        """Refuses what a state could not go on as; of what has none, nothing is refused."""
        if not self.has(name):
            return
        saved = self._saved(name)
        if saved is None or saved.runtime != self._runtime:
            wrote = "an older server" if saved is None else saved.runtime
            raise Conflict(
                why=f"what ran was kept by {wrote}, and this host has {self._runtime}",
                reason="other_runtime",
                hint="Its files are whole: stop what is stopped once more to let it begin anew with them, or"
                " make an image of a snapshot.",
            )
        if order.resources.memory_mb < saved.memory_mb:
            raise InvalidRequest(
                field="resources.memory_mb",
                why=f"what runs in it was kept with {saved.memory_mb} MB, and goes on with no less",
            )

    def drop(self, name: str) -> None:
        """Gone already is success."""
        self.drop_new(name)
        gone = self._path / f"{GONE}{name}"
        shutil.rmtree(gone, ignore_errors=True)
        try:
            os.rename(self._path / name, gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def sweep(self, kept: Collection[str]) -> None:
        """Removes what a killed server left of what is no more, or never was."""
        for place in self._path.iterdir():
            if not place.name.startswith(STILL) and place.name not in kept:
                shutil.rmtree(place, ignore_errors=True)

    def note_still(self, sandbox_id: str) -> None:
        """Notes that it goes on once it is saved, whoever sees to that."""
        (self._path / f"{STILL}{sandbox_id}").touch()

    def forget_still(self, sandbox_id: str) -> None:
        (self._path / f"{STILL}{sandbox_id}").unlink(missing_ok=True)

    def left_still(self) -> Sequence[str]:
        """Returns the sandboxes that a killed server had stand still."""
        return [place.name.removeprefix(STILL) for place in self._path.glob(f"{STILL}*")]

    def _saved(self, name: str) -> Saved | None:
        try:
            return Saved(**json.loads((self._path / name / "about.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _save_now(self, argv: list[str], place: Path) -> None:
        """Asks gVisor, and again while lines are open inside that a killed server had."""
        deadline = time.monotonic() + LET_GO_S
        while True:
            try:
                return self._run(argv)
            except Unavailable as error:
                if _OPEN_LINE not in str(error) or time.monotonic() > deadline:
                    raise
            shutil.rmtree(place)
            place.mkdir(mode=0o700)
            # Nothing tells when it has let go of them.
            time.sleep(0.05)

    def _run(self, argv: list[str]) -> None:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SAVE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(why=f"gVisor did not save it within {SAVE_TIMEOUT_S:g} s") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise Unavailable(why=f"gVisor could not save it: {said[:400] or done.returncode}")


def _bytes_of(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())

"""The process that reads and unpacks archives; whoever waits for it can end it at any moment.

A thread cannot be stopped, and an archive can be made that takes long to read. So a separate process does the
work. It is killed when its client leaves or the server stops, and ends by itself when the server dies. `main`
is that process; `Unpacker` is the server's side of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from sandboxer.artifacts.images.oci.applying import Applying, unpack_whole
from sandboxer.artifacts.images.oci.archive import Blob, Part, layer_members, understand
from sandboxer.artifacts.images.oci.tar import FILE, Work
from sandboxer.artifacts.images.oci.tar import WHITEOUT as MARK
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel import errors
from sandboxer.kernel.errors import SandboxerError, TooLarge, Unavailable
from sandboxer.kernel.fairness import note_work
from sandboxer.kernel.values import brief_value_class

_BLOCK = 4096


@dataclass(slots=True, kw_only=True)
class Weight:
    layers: list[Blob] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    bytes: int = 0
    entries: int = 0
    # For each layer: whether it hides anything.
    marks: list[bool] = field(default_factory=list)


def weigh(file: IO[bytes], bounds: Bounds) -> Weight:
    """Measures what an archive will take when unpacked, by reading every layer to its end: digests are
    checked and content is counted before anything is made of it.

    Blocks. Raises InvalidRequest for an archive that is not what it should be, TooLarge.
    """
    found = understand(file)
    weight, work = Weight(layers=list(found.layers), config=found.config), Work(bounds)
    ends = time.monotonic() + bounds.seconds
    for blob in found.layers:
        has_marks = False
        for member in layer_members(file, blob, most_bytes=bounds.bytes, ends=ends, work=work):
            weight.entries += 1
            has_marks = has_marks or MARK in member.path
            if member.kind == FILE:
                weight.bytes += -(-member.size // _BLOCK) * _BLOCK
            if weight.bytes > bounds.bytes:
                raise TooLarge(what="image", limit=f"{bounds.bytes >> 20} MB")
            if weight.entries > bounds.entries:
                raise TooLarge(what="image", limit=f"{bounds.entries} files and folders")
        weight.marks.append(has_marks)
    return weight


# It has the lowest priority, set before it even reads its own code.
_BEGIN = f"from sandboxer.kernel.fairness import come_last; come_last(); import {__name__} as it; it.main()"


class Unpacker:
    """The process for one archive. `weigh` and `apply` block, in threads; `kill` may be called
    from anywhere.
    """

    def __init__(self, archive: IO[bytes], bounds: Bounds) -> None:
        self._archive = archive
        self._bounds = bounds
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def unpack(self, plain: IO[bytes], room: Path, most_bytes: int) -> None:
        """Unpacks an archive that was packed as a whole; from then on it is read from `plain`, a file in
        `room`.
        """
        job = {"task": "unpack", "plain": plain.fileno(), "room": str(room), "most_bytes": most_bytes}
        self._run(job, plain.fileno())
        self._archive = plain

    def weigh(self) -> Weight:
        """Raises InvalidRequest for an archive that is not what it should be, TooLarge."""
        reply = self._run({"task": "weigh"})
        layers = [Blob(part=Part(**one.pop("part")), **one) for one in reply.pop("layers")]
        return Weight(layers=layers, **reply)

    def apply(self, root: int, layers: Sequence[Blob], marks: Sequence[bool]) -> None:
        """Unpacks into the folder behind `root`. Raises InvalidRequest, TooLarge, DiskFull."""
        described = [asdict(one) for one in layers]
        self._run({"task": "apply", "root": root, "layers": described, "marks": list(marks)}, root)

    def kill(self) -> None:
        """Ends what runs, and prevents that anything more is begun."""
        with self._lock:
            self._is_killed = True
            if self._child is not None and self._child.poll() is None:
                self._child.kill()

    def _run(self, task: dict[str, Any], *more_fds: int) -> dict[str, Any]:
        archive = self._archive.fileno()
        job = {**task, "archive": archive, "bounds": asdict(self._bounds)}
        with self._begun((archive, *more_fds)) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                child.stdin.write(json.dumps(job).encode() + b"\n")
                # It stays open: when it is closed, the process knows that nobody waits any more.
                child.stdin.flush()
                answer = child.stdout.read()
            except BrokenPipeError:
                answer = b""
            child.stdin.close()
        return _read(answer)

    def _begun(self, fds: Sequence[int]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_killed:
                raise _ended()
            self._child = subprocess.Popen(
                [sys.executable, "-c", _BEGIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=tuple(fds),
                bufsize=0,
                # Ctrl-C in the server's terminal must not reach it: the server ends it.
                start_new_session=True,
            )
            return self._child


def _read(answer: bytes) -> dict[str, Any]:
    if not answer:
        raise _ended()
    reply: dict[str, Any] = json.loads(answer)
    note_work(reply.pop("processor_s"))
    if (refusal := reply.get("refusal")) is not None:
        raise getattr(errors, refusal)(**reply["facts"])
    return reply


def _ended() -> Unavailable:
    return Unavailable(why="the archive was not unpacked to its end", hint="Send it again.")


# -- the process itself --------------------------------------------------------------------------------------


@brief_value_class
class _Job:
    task: str
    archive: IO[bytes]
    bounds: Bounds
    request: dict[str, Any]

    def run(self) -> dict[str, Any]:
        match self.task:
            case "unpack":
                return self._unpack()
            case "weigh":
                return asdict(weigh(self.archive, self.bounds))
            case _:
                return self._apply()

    def _unpack(self) -> dict[str, Any]:
        ends = time.monotonic() + self.bounds.seconds
        with os.fdopen(self.request["plain"], "wb") as plain:
            room, most = Path(self.request["room"]), self.request["most_bytes"]
            unpack_whole(self.archive, plain, room=room, most_bytes=most, ends=ends)
        return {}

    def _apply(self) -> dict[str, Any]:
        applying = Applying(self.request["root"], self.bounds)
        for one, has_marks in zip(self.request["layers"], self.request["marks"], strict=True):
            blob = Blob(part=Part(**one.pop("part")), **one)
            inside = layer_members(
                self.archive, blob, most_bytes=self.bounds.bytes, ends=applying.ends, work=applying.work
            )
            applying.apply(inside, has_marks=has_marks)
        applying.on_start()
        return {"skipped": applying.skipped}


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()
    with os.fdopen(request["archive"], "rb") as archive:
        job = _Job(request["task"], archive, Bounds(**request["bounds"]), request)
        try:
            answer = job.run()
        except SandboxerError as error:
            answer = {"refusal": type(error).__name__, "facts": error.facts}
    sys.stdout.write(json.dumps({**answer, "processor_s": time.process_time()}))


def _end_with_server() -> None:
    # The descriptor, not the buffer: its lock would be held when the interpreter ends, which is fatal to it.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)

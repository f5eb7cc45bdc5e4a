"""A process that has loaded what every command line loads, and forks itself for each one.

Each command is still a process of its own, with its own words, environment, streams and exit code; only the
second of importing libraries is not repeated for each of two hundred. Nothing of `sandboxer.edges.cli` is
loaded before the fork: it looks at its streams when it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIBRARIES = (
    "httpx",
    "rich.console",
    "rich.progress",
    "rich.table",
    "typer.rich_utils",
    "sandboxer.edges.http.app",
    "sandboxer.sdk.sync.client",
)


class Forking:
    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def run(
        self, words: Sequence[str], env: Mapping[str, str], stdin: bytes | None, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """As `subprocess.run` would: exit code, output, errors."""
        reading = os.open(os.devnull, os.O_RDONLY) if stdin is None else _pipe_of(stdin)
        with (
            open(reading, "rb") as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            socket.socket(socket.AF_UNIX) as line,
        ):
            line.settimeout(timeout)
            line.connect(self._path)
            order = json.dumps({"words": [*words], "env": {**env}, "cwd": os.getcwd()}).encode()
            socket.send_fds(line, [len(order).to_bytes(4)], [source.fileno(), out.fileno(), err.fileno()])
            line.sendall(order)
            source.close()
            answer = line.makefile("rb").read()
            assert answer, f"{words} ended without an exit code"
            out.seek(0)
            err.seek(0)
            return int(answer), out.read(), err.read()


def _pipe_of(data: bytes) -> int:
    reading, writing = os.pipe()
    threading.Thread(target=_feed, args=(writing, data), daemon=True).start()
    return reading


def _feed(fd: int, data: bytes) -> None:
    # A command may end without having read it all.
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


@contextmanager
def forking() -> Iterator[Forking]:
    with tempfile.TemporaryDirectory(prefix="forking-", dir="/tmp") as folder:  # short, for a socket
        path = Path(folder) / "line"
        # The death signal ends it even when the test run is killed.
        words = ["setpriv", "--pdeathsig", "KILL", "--"]
        words += [sys.executable, "-m", "tests.cli.forking", str(path)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        try:
            deadline = time.monotonic() + 60
            while not path.exists():
                assert process.poll() is None, "it ended at once"
                assert time.monotonic() < deadline, "it did not start"
                time.sleep(0.01)
            yield Forking(path)
        finally:
            process.kill()
            process.wait()


def serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(16)
    os.rename(path + ".new", path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(line)
        line.close()


def _attend(line: socket.socket) -> None:
    head, fds, _, _ = socket.recv_fds(line, 4, 3)
    order = json.loads(line.makefile("rb").read(int.from_bytes(head)))
    child = os.fork()
    if child == 0:
        line.close()
        _become(order, fds)
    _, status = os.waitpid(child, 0)
    line.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(order: dict[str, Any], fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = ["sandboxer", *order["words"]]
    code = 1
    try:
        # Only now: it looks at the streams.
        from sandboxer.edges.cli.main import run  # noqa: PLC0415

        code = run(order["words"])
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    serve(sys.argv[1])

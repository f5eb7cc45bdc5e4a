"""A process that has loaded what servers and command lines load, and forks itself for each one.

Each is still a process of its own, with its own words, environment, streams, session and exit code; only the
seconds of importing libraries are not repeated for each of hundreds. Nothing of `sandboxer.edges.cli` is
loaded before the fork: it looks at its streams when it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    "httpx",
    "rich.console",
    "rich.progress",
    "rich.table",
    "typer.rich_utils",
    "sandboxer.edges.http.app",
    "sandboxer.edges.http.server",
    "sandboxer.sdk.sync.client",
    "sandboxer.wiring",
)


@dataclass
class Forked:
    """One that was started, as `subprocess.Popen` shows it. It dies with whoever holds this."""

    words: Sequence[str]
    pid: int
    _line: socket.socket
    returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not _is_readable(self._line, timeout):
                raise subprocess.TimeoutExpired(self.words, timeout or 0)
            answer = self._line.makefile("rb").read()
            assert answer, f"{self.words} ended without an exit code"
            self.returncode = int(answer)
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        # Its parent tells us of its end before the number can be another's.
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


@dataclass(frozen=True)
class Forking:
    path: str
    # Whose lines are open: were one dropped, its process would end.
    started: list[Forked] = field(default_factory=list)

    def start(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        program: str = "sandboxer.edges.cli.main",
        in_new_session: bool = False,
    ) -> Forked:
        """`python -m program words…` in all but the time it takes; streams are descriptors, -1 is none."""
        order = {"words": [*words], "env": {**env}, "cwd": os.getcwd(), "program": program}
        order["in_new_session"] = in_new_session
        packed = json.dumps(order).encode()
        line = socket.socket(socket.AF_UNIX)
        line.connect(self.path)
        with open(os.devnull, "r+b") as nothing:
            fds = [fd if fd >= 0 else nothing.fileno() for fd in (stdin, stdout, stderr)]
            socket.send_fds(line, [len(packed).to_bytes(4)], fds)
            line.sendall(packed)
            pid = int.from_bytes(line.recv(4, socket.MSG_WAITALL))
        assert pid, f"{words} could not be started"
        self.started[:] = [one for one in self.started if one.returncode is None]
        self.started.append(made := Forked([*words], pid, line))
        return made

    def run(
        self, words: Sequence[str], env: Mapping[str, str], stdin: bytes | None, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """As `subprocess.run` would: exit code, output, errors."""
        reading = os.open(os.devnull, os.O_RDONLY) if stdin is None else _pipe_of(stdin)
        with (
            open(reading, "rb") as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            fds = {"stdin": source.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            process = self.start(words, env, **fds)
            source.close()
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()


def _is_readable(line: socket.socket, timeout: float | None) -> bool:
    """Whatever its number: `select` takes none above a thousand."""
    watched = select.poll()
    watched.register(line, select.POLLIN)
    return bool(watched.poll(None if timeout is None else timeout * 1000))


def _pipe_of(data: bytes) -> int:
    reading, writing = os.pipe()
    threading.Thread(target=_feed, args=(writing, data), daemon=True).start()
    return reading


def _feed(fd: int, data: bytes) -> None:
    # A command may end without having read it all.
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


_open = ExitStack()


@cache
def forking() -> Forking:
    """The one of this test process, begun when it is first asked for."""
    return _open.enter_context(_begun())


def end_forking() -> None:
    _open.close()
    forking.cache_clear()


@contextmanager
def _begun() -> Iterator[Forking]:
    with tempfile.TemporaryDirectory(prefix="forking-", dir="/tmp") as folder:  # short, for a socket
        path = Path(folder) / "line"
        # The death signal ends it even when the test run is killed.
        words = ["setpriv", "--pdeathsig", "KILL", "--"]
        words += [sys.executable, "-m", "tests.support.forking", str(path)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd=ROOT)
        try:
            deadline = time.monotonic() + 100
            while not path.exists():
                assert process.poll() is None, "it ended at once"
                assert time.monotonic() < deadline, "it did not start"
                time.sleep(0.01)
            yield Forking(str(path))
        finally:
            process.kill()
            process.wait()


# -- the process itself --------------------------------------------------------------------------------------


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
    order = json.loads(line.recv(int.from_bytes(head), socket.MSG_WAITALL))
    child = os.fork()
    if child == 0:
        line.close()
        _become(order, fds)
    for fd in fds:
        os.close(fd)
    line.sendall(child.to_bytes(4))
    ended = os.pidfd_open(child)
    if line in select.select([ended, line], [], [])[0]:
        os.kill(child, signal.SIGKILL)  # whoever asked for it is gone
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        line.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(order: dict[str, Any], fds: list[int]) -> None:
    if order["in_new_session"]:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    sys.stdout, sys.stderr = _writer(1), _writer(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["sandboxer", *order["words"]]
    code = 1
    try:
        code = _run(order["program"], order["words"])
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _writer(fd: int) -> io.TextIOWrapper:
    """As the interpreter opens its own: by lines where someone looks, and errors always."""
    by_lines = fd == 2 or os.isatty(fd)
    return io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(fd, "w", closefd=False)), "utf-8", line_buffering=by_lines
    )


def _run(program: str, words: list[str]) -> int:
    if program != "sandboxer.edges.cli.main":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return 0
    # Only now: it looks at the streams.
    from sandboxer.edges.cli.main import run  # noqa: PLC0415

    return run(words)


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    app: Any = sys.modules["sandboxer.edges.http.app"]
    app.all_bindings((*app.ROUTES, *app.E2B_ROUTES))
    gc.freeze()
    serve(sys.argv[1])

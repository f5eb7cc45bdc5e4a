"""Child processes that cannot outlive us: the kernel kills them when the thread that started them is gone,
even when a test run dies by SIGKILL."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class NotStarted(RuntimeError):
    """A node did not come up; the text says what it said last."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_started: list[Child] = []


def kill_all() -> None:
    """Every node of this process, at once: for who cannot wait until they have finished starting."""
    for child in _started:
        child.kill()


class Child:
    def __init__(
        self, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )
        _started.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60) -> None:
        """Polls until the node answers; a node that ended early is not waited for."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"{self._process.args!r}: {self.last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self, gently: signal.Signals = signal.SIGTERM, seconds: float = 10) -> None:
        if self._process.poll() is None:
            self._process.send_signal(gently)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

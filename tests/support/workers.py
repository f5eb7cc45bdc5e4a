"""Test processes that begin where the first one stands (`pytest -n`): what all of them import took each three
seconds of a processor, and is imported once.

Each is a fork of the process that hands out tests, made before that has a second thread, and speaks with it
as an interpreter of its own would. One that dies is replaced by such an interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, NoReturn

from _pytest.assertion.rewrite import AssertionRewritingHook
from execnet import XSpec, gateway_io
from execnet.gateway_base import ExecModel, Popen2IO

_interpreter = gateway_io.create_io


class _Fork(Popen2IO):
    """One of them, as execnet shows a process that it has started."""

    def __init__(self, pid: int, writing: BinaryIO, reading: BinaryIO, model: ExecModel) -> None:
        super().__init__(writing, reading, execmodel=model)
        self._pid = pid

    def wait(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


# Process, and what is written to it and read from it.
_ready: list[tuple[int, BinaryIO, BinaryIO]] = []


def fork_workers(specs: Sequence[XSpec]) -> None:
    """Makes one for each that is about to be started, unless it is to be another interpreter or elsewhere."""
    if threading.active_count() > 1 or not all(spec.popen and not spec.python for spec in specs):
        return
    gc.collect()
    gc.freeze()
    for _ in specs:
        _ready.append(_fork())
    gateway_io.create_io = _create


def _create(spec: XSpec, execmodel: ExecModel) -> Any:
    return _Fork(*_ready.pop(0), execmodel) if _ready else _interpreter(spec, execmodel)


def _fork() -> tuple[int, BinaryIO, BinaryIO]:
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if (pid := os.fork()) == 0:
        # Whoever holds the other end of a line keeps its process from seeing that we are gone.
        for fd in (our_output, our_input, *(line.fileno() for _, *lines in _ready for line in lines)):
            os.close(fd)
        _become(their_input, their_output)
    os.close(their_input)
    os.close(their_output)
    return pid, open(our_output, "wb"), open(our_input, "rb")


def _become(reading: int, writing: int) -> NoReturn:
    """Does what a new interpreter does: it reads one line, which is a program, and follows it."""
    code = 1
    try:
        for fd, number in ((reading, 0), (writing, 1)):
            os.dup2(fd, number)
            os.close(fd)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        # Those of the session that we were forked from; ours brings its own.
        logging.getLogger().handlers.clear()
        sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, AssertionRewritingHook)]
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(code)

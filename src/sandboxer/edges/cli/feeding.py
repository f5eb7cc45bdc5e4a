"""Our standard input, passed on to a process in a sandbox while its output is printed."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import BinaryIO

from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire.processes import Process

# A pipe's worth: small enough to be live, large enough not to cost a request per line.
CHUNK = 1 << 18
# How long the answer to what was under way when the process ended may take.
PATIENCE_S = 30.0
# How long whoever fills our input may take to give us more, once the process has ended.
MOMENT_S = 0.05


class Feeder:
    """Reads until the end of our input, in a thread of its own.

    `failure` is set when the process did not take what we had read, whoever's fault that was.
    """

    def __init__(self, sandbox: Sandbox, process: Process, stdin: BinaryIO) -> None:
        self._sandbox = sandbox
        self._id = process.process_id
        # A sandbox that counts lets us repeat a write whose answer was lost.
        self._counts = process.stdin_bytes is not None
        self._stdin = stdin
        self._idle = threading.Event()
        self._idle.set()
        self.passed_on = 0
        self.failure: SdkError | None = None
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """To be called when the process has ended: waits for the answer to what is under way, and offers what
        there still is to read. Of input that nobody has given us yet nothing can be said."""
        deadline = time.monotonic() + PATIENCE_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._idle.wait(PATIENCE_S) and not select.select([self._stdin], [], [], MOMENT_S)[0]:
                return
            self._thread.join(MOMENT_S)

    @property
    def complaint(self) -> str | None:
        """Why the process did not take what we read, in words; None: it did."""
        if self.failure is None:
            return None
        last = self.failure.problem.get("taken_bytes", 0) if isinstance(self.failure, ApiError) else 0
        if not isinstance(last, int):
            return str(self.failure)
        return f"the command took {self.passed_on + last} bytes and no more ({self.failure})"

    def _feed(self) -> None:
        try:
            while data := os.read(self._stdin.fileno(), CHUNK):
                self._idle.clear()
                offset = self.passed_on if self._counts else None
                self._sandbox.processes.write_stdin(self._id, data, offset=offset)
                self.passed_on += len(data)
                self._idle.set()
            self._idle.clear()
            self._sandbox.processes.close_stdin(self._id)
        except SdkError as error:
            # Closing what has ended and was forgotten is no loss.
            self.failure = error if data else None
        finally:
            self._idle.set()

# Written by scripts/generate-sync from sdk/aio/processes.py. Do not edit.
"""`sandbox.processes`: background processes, blocking."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence

from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.commands import MARGIN_S, Piece, What, named, piece
from sandboxer.sdk.sync.line import Line, server_events
from sandboxer.wire.processes import Process


class Processes:
    """Started by one request, looked after by others, alive between them."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    def start(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        has_stdin: bool = False,
        tag: str = "",
    ) -> Process:
        call = calls.start_process(
            self._id,
            **named(what),
            cwd=cwd,
            env=env or None,
            user=user,
            timeout_s=timeout_s,
            has_stdin=has_stdin or None,
            tag=tag or None,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def list(self) -> Sequence[Process]:
        return self._line.send(calls.list_processes(self._id)).processes

    def get(self, process_id: str) -> Process:
        return self._line.send(calls.get_process(self._id, process_id))

    def output(self, process_id: str, *, after: str | None = None) -> Iterator[Piece]:
        """Yields what is kept of its output, then what follows, then its exit."""
        call = calls.attach_process(self._id, process_id, after=after, encoding="base64")
        for event in server_events(self._line, call):
            if (found := piece(event)) is not None:
                yield found

    def write_stdin(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Returns when its stdin took all of it. `offset`: bytes written before; it can then be repeated."""
        text = base64.b64encode(data).decode()
        call = calls.write_stdin(
            self._id, process_id, data=text, encoding="base64", close=close, offset=offset
        )
        # What was taken already is not taken twice where its place is known.
        self._line.send(call.repeatable(offset is not None))

    def close_stdin(self, process_id: str) -> None:
        self._line.send(calls.close_stdin(self._id, process_id))

    def signal(self, process_id: str, name: str, *, tree: bool = False) -> None:
        """`name` without SIG, as in `TERM`."""
        self._line.send(calls.signal_process(self._id, process_id, signal=name, tree=tree))

    def wait(self, process_id: str, *, timeout_s: float = 60.0) -> Process:
        """Returns at its end, or when the time is over with its present state."""
        call = calls.wait_process(self._id, process_id, timeout_s=timeout_s)
        return self._line.send(call.within(timeout_s + MARGIN_S))

    def end(self, process_id: str) -> None:
        """Kill everything it started, and forget it."""
        self._line.send(calls.end_process(self._id, process_id))

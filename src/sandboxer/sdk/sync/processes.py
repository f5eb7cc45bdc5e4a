"""`sandbox.processes`: background processes, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sandboxer.sdk.routes import running as routes
from sandboxer.sdk.routes.running import Piece, Settings, What
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
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
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        return self._line.do(routes.start(self._id, what, settings, has_stdin=has_stdin, tag=tag))

    def list(self) -> Sequence[Process]:
        return self._line.do(routes.processes(self._id)).processes

    def get(self, process_id: str) -> Process:
        return self._line.do(routes.process(self._id, process_id))

    def output(self, process_id: str, *, after: str | None = None) -> Iterator[Piece]:
        """What is kept of its output, then what follows, then its exit."""
        for event in server_events(self._line, routes.output(self._id, process_id, after=after)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    def write_stdin(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Returns when its stdin took all of it. `offset`: bytes written before; it can then be repeated."""
        self._line.do(routes.write_stdin(self._id, process_id, data, close=close, offset=offset))

    def close_stdin(self, process_id: str) -> None:
        self._line.do(routes.close_stdin(self._id, process_id))

    def signal(self, process_id: str, name: str, *, tree: bool = False) -> None:
        """`name` without SIG, as in `TERM`."""
        self._line.do(routes.signal(self._id, process_id, name, tree=tree))

    def wait(self, process_id: str, *, timeout_s: float = 60.0) -> Process:
        """Its end, or its present state when the time is over."""
        return self._line.do(routes.wait(self._id, process_id, timeout_s))

    def end(self, process_id: str) -> None:
        """Kill everything it started, and forget it."""
        self._line.do(routes.end(self._id, process_id))

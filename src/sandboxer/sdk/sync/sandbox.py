"""One sandbox, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType

from sandboxer.sdk.routes import running, sandboxes
from sandboxer.sdk.routes.reading import parse
from sandboxer.sdk.routes.running import Piece, Settings, What
from sandboxer.sdk.sync.egress import Egress
from sandboxer.sdk.sync.files import Files
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.previews import Previews
from sandboxer.sdk.sync.processes import Processes
from sandboxer.sdk.sync.secrets import SandboxSecrets
from sandboxer.sdk.sync.streams import server_events
from sandboxer.sdk.sync.terminal import Terminals
from sandboxer.wire import sandboxes as wire
from sandboxer.wire.events import Event
from sandboxer.wire.exec import ExecResult


class Sandbox:
    """`with client.create() as sandbox:` destroys it at the end."""

    def __init__(self, line: Line, sandbox_id: str, info: wire.Sandbox | None = None) -> None:
        self._line = line
        self._info = info
        self.id = sandbox_id
        self.files = Files(line, sandbox_id)
        self.processes = Processes(line, sandbox_id)
        self.terminal = Terminals(line, sandbox_id)
        self.previews = Previews(line, sandbox_id)
        self.egress = Egress(line, sandbox_id)
        self.secrets = SandboxSecrets(line, sandbox_id)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    @property
    def info(self) -> wire.Sandbox:
        """What the platform last said about it."""
        return self._info or self.refresh()

    def refresh(self) -> wire.Sandbox:
        self._info = self._line.do(sandboxes.get(self.id))
        return self._info

    def exec(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        output_limit_bytes: int | None = None,
    ) -> ExecResult:
        """Run to the end. A `str` goes to a shell, a list of words does not."""
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        call = running.execute(self.id, what, settings, stdin=stdin, output_limit_bytes=output_limit_bytes)
        return self._line.do(call)

    def stream(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[Piece]:
        """The same, piece by piece as it is written; the last piece is an `ExecExit`."""
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        for event in server_events(self._line, running.stream(self.id, what, settings, stdin=stdin)):
            if (piece := running.piece(event)) is not None:
                yield piece

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[Event]:
        """What happened to it since event `after`, then what happens."""
        for event in server_events(self._line, sandboxes.events(self.id, after=after, follow=follow)):
            yield parse(Event, event.data)

    def usage(self) -> wire.Usage:
        return self._line.do(sandboxes.usage(self.id))

    def reachability(self) -> wire.Reachability:
        return self._line.do(sandboxes.reachability(self.id))

    def freeze(self) -> wire.Sandbox:
        return self._change("freeze")

    def thaw(self) -> wire.Sandbox:
        return self._change("thaw")

    def stop(self) -> wire.Sandbox:
        return self._change("stop")

    def resume(self) -> wire.Sandbox:
        return self._change("resume")

    def recreate(self) -> wire.Sandbox:
        """A new disk from the image, the same id."""
        return self._change("recreate")

    def lock(self) -> wire.Sandbox:
        """From now on destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return self._change("lock")

    def unlock(self) -> wire.Sandbox:
        return self._change("unlock")

    def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        self._info = self._line.do(
            sandboxes.extend_ttl(self.id, duration, quote_id=quote_id, idempotency_key=idempotency_key)
        )
        return self._info

    def destroy(self) -> wire.Sandbox:
        """Gone already is success."""
        self._info = self._line.do(sandboxes.destroy(self.id))
        return self._info

    def _change(self, verb: sandboxes.Verb) -> wire.Sandbox:
        self._info = self._line.do(sandboxes.change(self.id, verb))
        return self._info

# Written by scripts/generate-sync from sdk/aio/sandbox.py. Do not edit.
"""One sandbox, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, found_at, lazily, new_idempotency_key, parse
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.commands import Piece, What, input_of, named, patience_s, piece
from sandboxer.sdk.sync.line import Line, server_events

if TYPE_CHECKING:
    from sandboxer.sdk.sync.access import Egress, Previews, SandboxSecrets
    from sandboxer.sdk.sync.files import Files
    from sandboxer.sdk.sync.processes import Processes
    from sandboxer.sdk.sync.terminal import Terminals
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.processes import ExecResult

NOUNS = {
    "files": "files:Files",
    "processes": "processes:Processes",
    "terminal": "terminal:Terminals",
    "previews": "access:Previews",
    "egress": "access:Egress",
    "secrets": "access:SandboxSecrets",
}


class Sandbox:
    """`with client.create() as sandbox:` destroys it at the end."""

    files: Files
    processes: Processes
    terminal: Terminals
    previews: Previews
    egress: Egress
    secrets: SandboxSecrets

    def __init__(self, line: Line, sandbox_id: str, info: wire.Sandbox | None = None) -> None:
        self._line = line
        self._info = info
        self.id = sandbox_id

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            made = lazily(self, name, NOUNS, __package__)(self._line, self.id)
            setattr(self, name, made)
            return made

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
        self._info = self._line.send(sandboxes.get_sandbox(self.id))
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
        call = calls.run_command(
            self.id,
            **named(what),
            **input_of(stdin),
            cwd=cwd,
            env=env or None,
            user=user,
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
        )
        return self._line.send(call.within(patience_s(timeout_s)))

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
        """Does the same, piece by piece as it is written; the last piece is an `ExecExit`."""
        call = calls.run_command(
            self.id,
            **named(what),
            **input_of(stdin),
            cwd=cwd,
            env=env or None,
            user=user,
            timeout_s=timeout_s,
            encoding="base64",
        )
        for event in server_events(self._line, call.streamed()):
            if (found := piece(event)) is not None:
                yield found

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[wire.Event]:
        """Yields what happened to it since event `after`, then what happens."""
        for event in server_events(self._line, sandboxes.follow_events(self.id, after=after, follow=follow)):
            yield parse(found_at("sandboxer.wire.sandboxes:Event"), event.data)

    def usage(self) -> wire.Usage:
        return self._line.send(sandboxes.get_usage(self.id))

    def reachability(self) -> wire.Reachability:
        return self._line.send(sandboxes.get_reachability(self.id))

    def freeze(self) -> wire.Sandbox:
        return self._change(sandboxes.freeze_sandbox(self.id))

    def thaw(self) -> wire.Sandbox:
        return self._change(sandboxes.thaw_sandbox(self.id))

    def stop(self) -> wire.Sandbox:
        return self._change(sandboxes.stop_sandbox(self.id))

    def resume(self) -> wire.Sandbox:
        return self._change(sandboxes.resume_sandbox(self.id))

    def recreate(self) -> wire.Sandbox:
        """Gives it a new disk from the image; the id stays."""
        return self._change(sandboxes.recreate_sandbox(self.id))

    def lock(self) -> wire.Sandbox:
        """From now on destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return self._change(sandboxes.lock_sandbox(self.id))

    def unlock(self) -> wire.Sandbox:
        return self._change(sandboxes.unlock_sandbox(self.id))

    def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        key = idempotency_key or new_idempotency_key()
        call = sandboxes.extend_ttl(self.id, duration=duration, quote_id=quote_id, idempotency_key=key)
        return self._change(call)

    def destroy(self) -> wire.Sandbox:
        """Gone already is success."""
        return self._change(sandboxes.destroy_sandbox(self.id))

    def _change(self, call: Call[wire.Sandbox]) -> wire.Sandbox:
        self._info = self._line.send(call)
        return self._info

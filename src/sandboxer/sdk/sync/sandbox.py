# Written by scripts/generate-sync from sdk/aio/sandbox.py. Do not edit.
"""One sandbox, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, described, found_at, lazily, new_idempotency_key, parse
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.commands import Piece, What, input_of, named, patience_s, piece
from sandboxer.sdk.sync.line import Line, Scope, server_events, told

if TYPE_CHECKING:
    from sandboxer.sdk.sync.access import Egress, Previews, SandboxSecrets
    from sandboxer.sdk.sync.inside import Files, Processes
    from sandboxer.sdk.sync.terminal import Terminals
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.processes import ExecResult

NOUNS = {
    "files": "inside:Files",
    "processes": "inside:Processes",
    "terminal": "terminal:Terminals",
    "previews": "access:Previews",
    "egress": "access:Egress",
    "secrets": "access:SandboxSecrets",
}


class Sandbox(Scope):
    """One sandbox: commands, files, terminals and ports are its attributes.

    Examples:
        >>> with client.create() as sandbox:  # destroyed at the end
        ...     sandbox.files.write("/workspace/a.txt", "kept")
    """

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

    def __repr__(self) -> str:
        return described(self, self._info)

    def _leave(self) -> None:
        self.destroy()

    @classmethod
    def get(cls, name_or_id: str) -> Sandbox:
        """Finds a sandbox by name or id, with the key that a client without arguments finds.

        Examples:
            >>> sandbox = Sandbox.get("dev")
        """
        found: Sandbox = found_at(__package__ + ".client:Sandboxer")().get(name_or_id)
        return found

    @property
    def info(self) -> wire.Sandbox:
        """Holds what the platform last said about it."""
        return self._info or self.refresh()

    def refresh(self) -> wire.Sandbox:
        """Asks how the sandbox stands now."""
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
        """Runs a command to the end. A `str` goes to a shell, a list of words does not.

        Examples:
            >>> done = sandbox.exec("echo $HOME; exit 3")
            >>> print(done.exit_code, done.stdout)
            >>> sandbox.exec(["python3", "-c", "print(6 * 7)"], timeout_s=10)
        """
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
        """Does the same, piece by piece as it is written; the last piece is an `ExecExit`.

        Examples:
            >>> for piece in sandbox.stream("make test"):
            ...     print(piece)
        """
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
        return told(self._line, call.streamed(), piece)

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[wire.Event]:
        """Yields what happened to it since event `after`, then what happens."""
        for event in server_events(self._line, sandboxes.follow_events(self.id, after=after, follow=follow)):
            yield parse(found_at("sandboxer.wire.sandboxes:Event"), event.data)

    def usage(self) -> wire.Usage:
        """Returns what it uses now: CPU time, memory, disk, processes, traffic."""
        return self._line.send(sandboxes.get_usage(self.id))

    def reachability(self) -> wire.Reachability:
        """Says whether it answers, and by which ways it can be reached."""
        return self._line.send(sandboxes.get_reachability(self.id))

    def freeze(self) -> wire.Sandbox:
        """Pauses all its processes in memory; `thaw` goes on where they were."""
        return self._change(sandboxes.freeze_sandbox(self.id))

    def thaw(self) -> wire.Sandbox:
        """Lets a frozen sandbox go on."""
        return self._change(sandboxes.thaw_sandbox(self.id))

    def stop(self, *, memory: bool | None = None) -> wire.Sandbox:
        """Ends its processes and keeps its disk; `resume` starts it again under the same id. With `memory`
        they are kept too, and go on then.
        """
        return self._change(sandboxes.stop_sandbox(self.id, memory=memory))

    def resume(self) -> wire.Sandbox:
        """Starts a stopped sandbox again."""
        return self._change(sandboxes.resume_sandbox(self.id))

    def recreate(self) -> wire.Sandbox:
        """Gives it a new disk from the image; the id stays."""
        return self._change(sandboxes.recreate_sandbox(self.id))

    def lock(self) -> wire.Sandbox:
        """Makes destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return self._change(sandboxes.lock_sandbox(self.id))

    def unlock(self) -> wire.Sandbox:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return self._change(sandboxes.unlock_sandbox(self.id))

    def change(
        self, *, name: str | None = None, labels: Mapping[str, str | None] | None = None
    ) -> wire.Sandbox:
        """Gives it another name, and sets labels beside those it has; None takes a label away.

        Examples:
            >>> sandbox.change(name="nightly", labels={"team": "search", "draft": None})
        """
        return self._change(sandboxes.change_sandbox(self.id, name=name, labels=labels))

    def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        """Gives it more time from now on: `30m`, `2h`, `1d`."""
        key = idempotency_key or new_idempotency_key()
        return self._change(
            sandboxes.extend_ttl(self.id, duration=duration, quote_id=quote_id, idempotency_key=key)
        )

    def destroy(self) -> wire.DestroyedSandbox:
        """Removes it with its disk; gone already is success. The answer names what it had made inside."""
        self._info = gone = self._line.send(sandboxes.destroy_sandbox(self.id))
        return gone

    def _change(self, call: Call[wire.Sandbox]) -> wire.Sandbox:
        self._info = self._line.send(call)
        return self._info

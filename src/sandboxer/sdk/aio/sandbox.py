"""One sandbox, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.aio.line import AsyncLine, AsyncScope, server_events, told
from sandboxer.sdk.call import Call, described, found_at, lazily, new_idempotency_key, parse
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.commands import Piece, What, input_of, named, patience_s, piece

if TYPE_CHECKING:
    from sandboxer.sdk.aio.access import AsyncEgress, AsyncPreviews, AsyncSandboxSecrets
    from sandboxer.sdk.aio.inside import AsyncFiles, AsyncProcesses
    from sandboxer.sdk.aio.terminal import AsyncTerminals
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.processes import ExecResult

NOUNS = {
    "files": "inside:AsyncFiles",
    "processes": "inside:AsyncProcesses",
    "terminal": "terminal:AsyncTerminals",
    "previews": "access:AsyncPreviews",
    "egress": "access:AsyncEgress",
    "secrets": "access:AsyncSandboxSecrets",
}


class AsyncSandbox(AsyncScope):
    """One sandbox: commands, files, terminals and ports are its attributes.

    Examples:
        >>> async with await client.create() as sandbox:  # destroyed at the end
        ...     await sandbox.files.write("/workspace/a.txt", "kept")
    """

    files: AsyncFiles
    processes: AsyncProcesses
    terminal: AsyncTerminals
    previews: AsyncPreviews
    egress: AsyncEgress
    secrets: AsyncSandboxSecrets

    def __init__(self, line: AsyncLine, sandbox_id: str, info: wire.Sandbox | None = None) -> None:
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

    async def _leave(self) -> None:
        await self.destroy()

    @classmethod
    async def get(cls, name_or_id: str) -> AsyncSandbox:
        """Finds a sandbox by name or id, with the key that a client without arguments finds.

        Examples:
            >>> sandbox = await AsyncSandbox.get("dev")
        """
        found: AsyncSandbox = await found_at(__package__ + ".client:AsyncSandboxer")().get(name_or_id)
        return found

    if True:  # ASYNC

        @property
        def info(self) -> wire.Sandbox | None:
            """Holds what the platform last said about it; None before the first `refresh`."""
            return self._info
    else:

        @property
        def info(self) -> wire.Sandbox:
            """Holds what the platform last said about it."""
            return self._info or self.refresh()

    async def refresh(self) -> wire.Sandbox:
        """Asks how the sandbox stands now."""
        self._info = await self._line.send(sandboxes.get_sandbox(self.id))
        return self._info

    async def exec(
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
            >>> done = await sandbox.exec("echo $HOME; exit 3")
            >>> print(done.exit_code, done.stdout)
            >>> await sandbox.exec(["python3", "-c", "print(6 * 7)"], timeout_s=10)
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
        return await self._line.send(call.within(patience_s(timeout_s)))

    def stream(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Piece]:
        """Does the same, piece by piece as it is written; the last piece is an `ExecExit`.

        Examples:
            >>> async for piece in sandbox.stream("make test"):
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

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[wire.Event]:
        """Yields what happened to it since event `after`, then what happens."""
        async for event in server_events(
            self._line, sandboxes.follow_events(self.id, after=after, follow=follow)
        ):
            yield parse(found_at("sandboxer.wire.sandboxes:Event"), event.data)

    async def usage(self) -> wire.Usage:
        """Returns what it uses now: CPU time, memory, disk, processes, traffic."""
        return await self._line.send(sandboxes.get_usage(self.id))

    async def reachability(self) -> wire.Reachability:
        """Says whether it answers, and by which ways it can be reached."""
        return await self._line.send(sandboxes.get_reachability(self.id))

    async def freeze(self) -> wire.Sandbox:
        """Pauses all its processes in memory; `thaw` goes on where they were."""
        return await self._change(sandboxes.freeze_sandbox(self.id))

    async def thaw(self) -> wire.Sandbox:
        """Lets a frozen sandbox go on."""
        return await self._change(sandboxes.thaw_sandbox(self.id))

    async def stop(self, *, memory: bool | None = None) -> wire.Sandbox:
        """Ends its processes and keeps its disk; `resume` starts it again under the same id. With `memory`
        they are kept too, and go on then.
        """
        return await self._change(sandboxes.stop_sandbox(self.id, memory=memory))

    async def resume(self) -> wire.Sandbox:
        """Starts a stopped sandbox again."""
        return await self._change(sandboxes.resume_sandbox(self.id))

    async def recreate(self) -> wire.Sandbox:
        """Gives it a new disk from the image; the id stays."""
        return await self._change(sandboxes.recreate_sandbox(self.id))

    async def lock(self) -> wire.Sandbox:
        """Makes destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return await self._change(sandboxes.lock_sandbox(self.id))

    async def unlock(self) -> wire.Sandbox:
        """Ends the lock; this itself needs a second proof (`confirm`)."""
        return await self._change(sandboxes.unlock_sandbox(self.id))

    async def change(
        self, *, name: str | None = None, labels: Mapping[str, str | None] | None = None
    ) -> wire.Sandbox:
        """Gives it another name, and sets labels beside those it has; None takes a label away.

        Examples:
            >>> await sandbox.change(name="nightly", labels={"team": "search", "draft": None})
        """
        return await self._change(sandboxes.change_sandbox(self.id, name=name, labels=labels))

    async def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        """Gives it more time from now on: `30m`, `2h`, `1d`."""
        key = idempotency_key or new_idempotency_key()
        return await self._change(
            sandboxes.extend_ttl(self.id, duration=duration, quote_id=quote_id, idempotency_key=key)
        )

    async def destroy(self) -> wire.DestroyedSandbox:
        """Removes it with its disk; gone already is success. The answer names what it had made inside."""
        self._info = gone = await self._line.send(sandboxes.destroy_sandbox(self.id))
        return gone

    async def _change(self, call: Call[wire.Sandbox]) -> wire.Sandbox:
        self._info = await self._line.send(call)
        return self._info

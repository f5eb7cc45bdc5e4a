"""One sandbox, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.aio.line import AsyncLine, server_events
from sandboxer.sdk.call import Call, found_at, lazily, new_idempotency_key, parse
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.commands import Piece, What, input_of, named, patience_s, piece

if TYPE_CHECKING:
    from sandboxer.sdk.aio.access import AsyncEgress, AsyncPreviews, AsyncSandboxSecrets
    from sandboxer.sdk.aio.files import AsyncFiles
    from sandboxer.sdk.aio.processes import AsyncProcesses
    from sandboxer.sdk.aio.terminal import AsyncTerminals
    from sandboxer.wire import sandboxes as wire
    from sandboxer.wire.processes import ExecResult

NOUNS = {
    "files": "files:AsyncFiles",
    "processes": "processes:AsyncProcesses",
    "terminal": "terminal:AsyncTerminals",
    "previews": "access:AsyncPreviews",
    "egress": "access:AsyncEgress",
    "secrets": "access:AsyncSandboxSecrets",
}


class AsyncSandbox:
    """`async with await client.create() as sandbox:` destroys it at the end."""

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

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    if True:  # ASYNC

        @property
        def info(self) -> wire.Sandbox | None:
            """What the platform last said about it; None before the first `refresh`."""
            return self._info
    else:

        @property
        def info(self) -> wire.Sandbox:
            """What the platform last said about it."""
            return self._info or self.refresh()

    async def refresh(self) -> wire.Sandbox:
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
        return await self._line.send(call.within(patience_s(timeout_s)))

    async def stream(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Piece]:
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
        async for event in server_events(self._line, call.streamed()):
            if (found := piece(event)) is not None:
                yield found

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[wire.Event]:
        """Yields what happened to it since event `after`, then what happens."""
        async for event in server_events(
            self._line, sandboxes.follow_events(self.id, after=after, follow=follow)
        ):
            yield parse(found_at("sandboxer.wire.sandboxes:Event"), event.data)

    async def usage(self) -> wire.Usage:
        return await self._line.send(sandboxes.get_usage(self.id))

    async def reachability(self) -> wire.Reachability:
        return await self._line.send(sandboxes.get_reachability(self.id))

    async def freeze(self) -> wire.Sandbox:
        return await self._change(sandboxes.freeze_sandbox(self.id))

    async def thaw(self) -> wire.Sandbox:
        return await self._change(sandboxes.thaw_sandbox(self.id))

    async def stop(self) -> wire.Sandbox:
        return await self._change(sandboxes.stop_sandbox(self.id))

    async def resume(self) -> wire.Sandbox:
        return await self._change(sandboxes.resume_sandbox(self.id))

    async def recreate(self) -> wire.Sandbox:
        """Gives it a new disk from the image; the id stays."""
        return await self._change(sandboxes.recreate_sandbox(self.id))

    async def lock(self) -> wire.Sandbox:
        """From now on destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return await self._change(sandboxes.lock_sandbox(self.id))

    async def unlock(self) -> wire.Sandbox:
        return await self._change(sandboxes.unlock_sandbox(self.id))

    async def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        key = idempotency_key or new_idempotency_key()
        call = sandboxes.extend_ttl(self.id, duration=duration, quote_id=quote_id, idempotency_key=key)
        return await self._change(call)

    async def destroy(self) -> wire.Sandbox:
        """Gone already is success."""
        return await self._change(sandboxes.destroy_sandbox(self.id))

    async def _change(self, call: Call[wire.Sandbox]) -> wire.Sandbox:
        self._info = await self._line.send(call)
        return self._info

"""One sandbox, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from sandboxer.sdk.aio.egress import AsyncEgress
from sandboxer.sdk.aio.files import AsyncFiles
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.previews import AsyncPreviews
from sandboxer.sdk.aio.processes import AsyncProcesses
from sandboxer.sdk.aio.secrets import AsyncSandboxSecrets
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.aio.terminal import AsyncTerminals
from sandboxer.sdk.routes import running, sandboxes
from sandboxer.sdk.routes.reading import parse
from sandboxer.sdk.routes.running import Piece, Settings, What
from sandboxer.wire import sandboxes as wire
from sandboxer.wire.events import Event
from sandboxer.wire.exec import ExecResult


class AsyncSandbox:
    """`async with await client.create() as sandbox:` destroys it at the end."""

    def __init__(self, line: AsyncLine, sandbox_id: str, info: wire.Sandbox | None = None) -> None:
        self._line = line
        self._info = info
        self.id = sandbox_id
        self.files = AsyncFiles(line, sandbox_id)
        self.processes = AsyncProcesses(line, sandbox_id)
        self.terminal = AsyncTerminals(line, sandbox_id)
        self.previews = AsyncPreviews(line, sandbox_id)
        self.egress = AsyncEgress(line, sandbox_id)
        self.secrets = AsyncSandboxSecrets(line, sandbox_id)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    @property
    def info(self) -> wire.Sandbox | None:
        """What the platform last said about it; None before the first `refresh`."""
        return self._info

    async def refresh(self) -> wire.Sandbox:
        self._info = await self._line.do(sandboxes.get(self.id))
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
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        call = running.execute(self.id, what, settings, stdin=stdin, output_limit_bytes=output_limit_bytes)
        return await self._line.do(call)

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
        """The same, piece by piece as it is written; the last piece is an `ExecExit`."""
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        async for event in server_events(self._line, running.stream(self.id, what, settings, stdin=stdin)):
            if (piece := running.piece(event)) is not None:
                yield piece

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[Event]:
        """What happened to it since event `after`, then what happens."""
        async for event in server_events(self._line, sandboxes.events(self.id, after=after, follow=follow)):
            yield parse(Event, event.data)

    async def usage(self) -> wire.Usage:
        return await self._line.do(sandboxes.usage(self.id))

    async def reachability(self) -> wire.Reachability:
        return await self._line.do(sandboxes.reachability(self.id))

    async def freeze(self) -> wire.Sandbox:
        return await self._change("freeze")

    async def thaw(self) -> wire.Sandbox:
        return await self._change("thaw")

    async def stop(self) -> wire.Sandbox:
        return await self._change("stop")

    async def resume(self) -> wire.Sandbox:
        return await self._change("resume")

    async def recreate(self) -> wire.Sandbox:
        """A new disk from the image, the same id."""
        return await self._change("recreate")

    async def lock(self) -> wire.Sandbox:
        """From now on destroying, recreating and unlocking it need a second proof (`confirm`)."""
        return await self._change("lock")

    async def unlock(self) -> wire.Sandbox:
        return await self._change("unlock")

    async def extend_ttl(
        self, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
    ) -> wire.Sandbox:
        self._info = await self._line.do(
            sandboxes.extend_ttl(self.id, duration, quote_id=quote_id, idempotency_key=idempotency_key)
        )
        return self._info

    async def destroy(self) -> wire.Sandbox:
        """Gone already is success."""
        self._info = await self._line.do(sandboxes.destroy(self.id))
        return self._info

    async def _change(self, verb: sandboxes.Verb) -> wire.Sandbox:
        self._info = await self._line.do(sandboxes.change(self.id, verb))
        return self._info

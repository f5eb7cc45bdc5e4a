"""Commands and files of a sandbox as one of its users meets them, with the errors of Python.

The platform's own file calls act as root. Programs that judge what a model did want what the model's user may
do, and no less: commands and input of any size, too.
"""

from __future__ import annotations

import posixpath
import shlex
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.errors import NotFound, Refused
from sandboxer.wire.processes import STDIN_MAX, ExecExit, ExecResult

# What a request carries; the rest goes by a file. Base 64 makes it larger by a third.
MOST_INPUT = STDIN_MAX // 2
MOST_WORDS = 128 * 1024
# Run by /bin/sh as the user; the path is its first word. Each way to fail has a code of its own.
_READ = 'test -d "$1" && exit 121; test -e "$1" || exit 122; test -r "$1" || exit 123; exec cat -- "$1"'
_WRITE = (
    'test -d "$1" && exit 121; mkdir -p -- "${1%/*}" 2>/dev/null; ( : >>"$1" ) 2>/dev/null || exit 123;'
    ' exec cat >"$1"'
)
_FAULTS: Mapping[int, tuple[type[OSError], str]] = {
    121: (IsADirectoryError, "it is a directory"),
    122: (FileNotFoundError, "there is no such file"),
    123: (PermissionError, "this user may not"),
}


class TooLarge(Exception):
    """There is more in a file than was asked for at most."""


class Hands:
    """What a user does in a sandbox; relative paths are below `workdir`."""

    def __init__(self, sandbox: AsyncSandbox, *, user: str, workdir: str = "/workspace") -> None:
        self.sandbox, self.user, self.workdir = sandbox, user, workdir

    async def run(
        self,
        words: Sequence[str],
        stdin: bytes | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        output_limit_bytes: int | None = None,
    ) -> ExecResult:
        """Runs words of any length on input of any size. A program that is not there ends with 127."""
        async with AsyncExitStack() as stack:
            if sum(map(len, words)) > MOST_WORDS:
                script = await stack.enter_async_context(self._kept(f"exec {shlex.join(words)}".encode()))
                words = ["/bin/sh", script]
            if stdin is not None and len(stdin) > MOST_INPUT:
                path = await stack.enter_async_context(self._kept(stdin))
                words, stdin = ["/bin/sh", "-c", 'exec <"$0" && exec "$@"', path, *words], None
            try:
                return await self.sandbox.exec(
                    words,
                    stdin=stdin,
                    cwd=self.path(cwd or ""),
                    env=env,
                    user=user or self.user,
                    timeout_s=timeout_s,
                    output_limit_bytes=output_limit_bytes,
                )
            except Refused as refused:
                if (done := _never_began(refused)) is None:
                    raise
                return done

    async def read(self, file: str, *, most: int) -> bytes:
        """Returns the content of a file; raises `TooLarge` where there is more than `most` of it."""
        content, said, code = bytearray(), bytearray(), 0
        words = ["/bin/sh", "-c", _READ, "sh", self.path(file)]
        async for piece in self.sandbox.stream(words, user=self.user, cwd="/"):
            if isinstance(piece, Chunk):
                (content if piece.stream == "stdout" else said).extend(piece.data)
            elif isinstance(piece, ExecExit):
                code = piece.exit_code
            if len(content) > most:
                raise TooLarge(f"{file} has more than {most} bytes")
        _raise_for(code, file, bytes(said).decode(errors="replace"))
        return bytes(content)

    async def write(self, file: str, content: bytes) -> None:
        """Writes a file, and makes the folders above it."""
        done = await self.run(["/bin/sh", "-c", _WRITE, "sh", self.path(file)], content)
        _raise_for(done.exit_code, file, done.stderr)

    def path(self, given: str) -> str:
        """Makes a path absolute."""
        return posixpath.join(self.workdir, given)

    @asynccontextmanager
    async def _kept(self, content: bytes) -> AsyncIterator[str]:
        path = f"/tmp/.sandboxer-{uuid.uuid4().hex}"
        await self.sandbox.files.write(path, content, mode=0o644)
        try:
            yield path
        finally:
            await self.sandbox.files.remove(path)


def _never_began(refused: Refused) -> ExecResult | None:
    """Says it as a shell would, where the command itself is at fault."""
    codes = {"permission_denied": 126, "path_not_found": 127}
    if (code := codes.get(refused.code)) is None or (code == 127 and not isinstance(refused, NotFound)):
        return None
    return ExecResult(
        exit_code=code, stdout="", stderr=f"{refused}\n", timed_out=False, truncated=False, duration_ms=0.0
    )


def _raise_for(code: int, file: str, said: str) -> None:
    if code in _FAULTS:
        fault, words = _FAULTS[code]
        raise fault(f"{file}: {words}")
    if code:
        raise OSError(f"{file}: {said.strip() or f'the command ended with {code}'}")

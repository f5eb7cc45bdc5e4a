"""Carries out what `words` understood, on the disk in memory. Every command waits at the freezer's gate."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sandboxer.backends.guest import FileKind, Stream
from sandboxer.backends.scripted.disk import Disk
from sandboxer.backends.scripted.processes import Job, Stdin
from sandboxer.backends.scripted.words import Entry, Group, Loop, NotUnderstood, Piece, Simple, parse
from sandboxer.kernel.errors import GuestRefused

Write = Callable[[bytes], Awaitable[None]]
Program = Callable[["Shell", list[str]], Awaitable[int]]


class Leave(Exception):
    """`exit n`"""

    def __init__(self, code: int) -> None:
        self.code = code


@dataclass
class Shell:
    job: Job
    disk: Disk
    variables: dict[str, str]
    cwd: str
    user: str
    stdin: Stdin
    out: Write
    err: Write
    # Returns when the sandbox is not frozen.
    gate: Callable[[], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]
    programs: dict[str, Program]
    # Scripted answers: a script that contains the key prints the value.
    answers: dict[str, bytes]

    async def run_argv(self, argv: list[str]) -> int:
        """As execve would: no shell unless it is asked for."""
        name = argv[0].rsplit("/", 1)[-1]
        if name in ("sh", "bash") and len(argv) > 2 and argv[1] in ("-c", "-lc"):
            return await self.run_script(argv[2])
        if name in ("sh", "bash") and len(argv) > 1 and not argv[1].startswith("-"):
            return await self.run_script(self._content(self.path(argv[1])).decode(errors="replace"))
        program = self.programs.get(name)
        if program is None:
            await self.err(f"{argv[0]}: not found\n".encode())
            return 127
        await self.gate()
        try:
            return await program(self, argv[1:])
        except GuestRefused as error:
            await self.err(f"{name}: {error}\n".encode())
            return 1

    async def run_script(self, script: str) -> int:
        for key, answer in self.answers.items():
            if key in script:
                await self.out(answer)
                return 0
        try:
            return await self._list(parse(script))
        except Leave as leave:
            return leave.code
        except (NotUnderstood, ValueError) as error:
            await self.err(f"the scripted shell does not understand this: {error}\n".encode())
            return 2

    async def _list(self, entries: list[Entry]) -> int:
        code = 0
        for entry in entries:
            if (entry.joined_by == "&&" and code) or (entry.joined_by == "||" and not code):
                continue
            if entry.in_background:
                self._leave_running(entry.pipeline)
                code = 0
            else:
                code = await self._pipeline(entry.pipeline)
            self.variables["?"] = str(code)
        return code

    async def _pipeline(self, pieces: list[Piece]) -> int:
        stdin = self.stdin
        for piece in pieces[:-1]:
            kept = bytearray()
            await replace(self, stdin=stdin, out=_keeping(kept))._piece(piece)
            stdin = Stdin()
            stdin.write(bytes(kept))
            stdin.close()
        last = self if stdin is self.stdin else replace(self, stdin=stdin)
        return await last._piece(pieces[-1])

    async def _piece(self, piece: Piece) -> int:
        await self.gate()
        if isinstance(piece, Group):
            inner = replace(self, variables=dict(self.variables))
            try:
                return await inner._list(piece.body)
            except Leave as leave:
                return leave.code
        if isinstance(piece, Loop):
            return await self._loop(piece)
        return await self._simple(piece)

    async def _loop(self, loop: Loop) -> int:
        code = 0
        if loop.condition is None:
            for item in [text for word in loop.items for text in word.split(self.variables)]:
                self.variables[loop.name] = item
                code = await self._list(loop.body)
            return code
        while await self._list(loop.condition) == 0:
            code = await self._list(loop.body)
            # A loop of builtins alone must leave the others a turn.
            await asyncio.sleep(0)
        return code

    async def _simple(self, simple: Simple) -> int:
        words = [text for word in simple.words for text in word.split(self.variables)]
        assigned = dict(self.variables)
        while words and _is_assignment(words[0]):
            name, _, value = words.pop(0).partition("=")
            assigned[name] = value
        if not words:
            self.variables.update(assigned)
            words = [":"]
        inner = replace(self, variables=assigned) if assigned != self.variables else self
        files: list[tuple[str, bytearray, bool]] = []
        for operator, target in simple.redirects:
            inner = await inner._redirected(
                operator, None if target is None else target.expand(assigned), files
            )
        if words[0] == "exit":
            raise Leave(int(words[1]) if len(words) > 1 else int(self.variables.get("?", "0")))
        if words[0] == "cd":
            self.cwd = self.disk.find(self.path(words[1]))[0]
            return 0
        if words[0] == "read":
            return await self._read(words[1])
        code = await inner.run_argv(words)
        for path, content, appends in files:
            before = self._content(path) if appends else b""
            try:
                self.disk.write(path, before + bytes(content))
            except GuestRefused as error:
                await self.err(f"sh: {error}\n".encode())
                code = 2
        return code

    async def _read(self, name: str) -> int:
        line = await self.stdin.read_line()
        self.variables[name] = "" if line is None else line.decode("utf-8", "surrogateescape")
        return 1 if line is None else 0

    async def _redirected(
        self, operator: str, target: str | None, files: list[tuple[str, bytearray, bool]]
    ) -> Shell:
        if operator == ">&2":
            return replace(self, out=self.err)
        if operator == "2>&1":
            return replace(self, err=self.out)
        assert target is not None
        path = self.path(target)
        if operator == "<":
            stdin = Stdin()
            stdin.write(self._content(path))
            stdin.close()
            return replace(self, stdin=stdin)
        kept = bytearray()
        if path != "/dev/null":
            files.append((path, kept, operator == ">>"))
        return replace(self, err=_keeping(kept)) if operator == "2>" else replace(self, out=_keeping(kept))

    def _leave_running(self, pipeline: list[Piece]) -> None:
        inner = replace(self, variables=dict(self.variables))

        async def live() -> None:
            with contextlib.suppress(Leave, asyncio.CancelledError):
                await inner._pipeline(pipeline)

        child = asyncio.get_running_loop().create_task(live())
        self.job.children.add(child)
        child.add_done_callback(self.job.children.discard)

    def path(self, text: str) -> str:
        return text if text.startswith("/") else f"{self.cwd}/{text}"

    def _content(self, path: str) -> bytes:
        try:
            _, node = self.disk.find(path)
        except GuestRefused:
            return b""
        return node.data if node.kind is FileKind.FILE else b""


def _keeping(kept: bytearray) -> Write:
    async def write(data: bytes) -> None:
        kept.extend(data)

    return write


def _is_assignment(word: str) -> bool:
    name, sign, _ = word.partition("=")
    return bool(sign) and name.isidentifier()


def ring_writer(job: Job, stream: Stream) -> Write:
    async def write(data: bytes) -> None:
        await job.ring.put(stream, data)

    return write

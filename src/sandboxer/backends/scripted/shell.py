"""Implements the fake's shell: enough of `sh` for the contract suite. Anything else raises NotUnderstood.

It carries out what `parse` understood, on the disk in memory. Every command waits at the freezer's gate.
Lists of pipelines of commands; quotes, variables and `$((…))`; redirections; `( )`, `while`, `for`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from sandboxer.backends.guest import FileKind, Stream
from sandboxer.backends.scripted.disk import Disk
from sandboxer.backends.scripted.processes import Job, Stdin
from sandboxer.kernel.errors import GuestRefused
from sandboxer.kernel.values import brief_value_class

OPERATORS = ("&&", "||", ">>", "2>&1", ">&2", "2>", ";", "&", "|", "(", ")", ">", "<", "\n")
_VARIABLE = re.compile(r"\$\(\(([^()]*)\)\)|\$\{(\w+)\}|\$(\w+|\?|\$)")
Write = Callable[[bytes], Awaitable[None]]
# What it returns is its exit code; nothing means that it succeeded.
Program = Callable[["Shell", list[str]], Awaitable[int | None]]


class Leave(Exception):
    """`exit n`"""

    def __init__(self, code: int) -> None:
        self.code = code


class NotUnderstood(Exception):
    """The script is beyond the fake's shell."""


@brief_value_class
class Word:
    # (text, how it was quoted: "'", '"' or "" for not at all)
    parts: tuple[tuple[str, str], ...]

    @property
    def raw(self) -> str:
        return "".join(text for text, _ in self.parts)

    def expand(self, variables: Mapping[str, str]) -> str:
        return "".join(text if quote == "'" else _expand(text, variables) for text, quote in self.parts)

    def split(self, variables: Mapping[str, str]) -> list[str]:
        """Splits words as the shell does: a bare variable becomes as many words as it holds."""
        whole = self.expand(variables)
        is_bare = all(not quote for _, quote in self.parts) and "$" in self.raw
        return whole.split() if is_bare else [whole]


@dataclass(slots=True)
class Simple:
    words: list[Word] = field(default_factory=list)
    # (operator, target)
    redirects: list[tuple[str, Word | None]] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """`( … )`"""

    body: list[Entry]


@dataclass(slots=True)
class Loop:
    """`while condition` or `for name in items`."""

    body: list[Entry]
    condition: list[Entry] | None = None
    name: str = ""
    items: list[Word] = field(default_factory=list)


Piece = Simple | Group | Loop


@dataclass(slots=True)
class Entry:
    """One pipeline and what joins it to the one before: `;`, `&&` or `||`."""

    joined_by: str
    pipeline: list[Piece]
    in_background: bool = False


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
        """Runs a command as execve would, without a shell."""
        name = argv[0].rsplit("/", 1)[-1]
        if name in ("sh", "bash") and len(argv) > 2 and argv[1] in ("-c", "-lc"):
            return await self.run_script(argv[2])
        if name in ("sh", "bash") and len(argv) > 1 and not argv[1].startswith("-"):
            return await self.run_script(self._content(self.path(argv[1])).decode(errors="replace"))
        if (program := self.programs.get(name)) is None:
            await self.err(f"{argv[0]}: not found\n".encode())
            return 127
        await self.gate()
        try:
            return await program(self, argv[1:]) or 0
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
        return await self._loop(piece) if isinstance(piece, Loop) else await self._simple(piece)

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


def tokenize(script: str) -> list[Word | str]:
    tokens: list[Word | str] = []
    at = 0
    while at < len(script):
        if script[at] in " \t":
            at += 1
            continue
        operator = next((op for op in OPERATORS if script.startswith(op, at)), None)
        if operator is not None:
            tokens.append(operator)
            at += len(operator)
            continue
        word, at = _read_word(script, at)
        tokens.append(word)
    return tokens


def parse(script: str) -> list[Entry]:
    tokens = tokenize(script)
    entries, at = _parse_list(tokens, 0, until=())
    if at != len(tokens):
        raise NotUnderstood(f"unexpected {tokens[at]!r}")
    return entries


def _read_word(script: str, at: int) -> tuple[Word, int]:
    parts: list[tuple[str, str]] = []
    while at < len(script) and script[at] not in " \t\n;&|()<>":
        if (char := script[at]) in "'\"":
            end = script.index(char, at + 1)
            parts.append((script[at + 1 : end], char))
            at = end + 1
        elif char == "\\":
            parts.append((script[at + 1 : at + 2], "'"))
            at += 2
        elif script.startswith("$((", at):
            end = script.index("))", at) + 2
            parts.append((script[at:end], ""))
            at = end
        else:
            end = at + 1
            while (
                end < len(script)
                and script[end] not in " \t\n;&|()<>'\"\\"
                and not script.startswith("$((", end)
            ):
                end += 1
            parts.append((script[at:end], ""))
            at = end
    return Word(tuple(parts)), at


def _parse_list(tokens: list[Word | str], at: int, until: tuple[str, ...]) -> tuple[list[Entry], int]:
    entries: list[Entry] = []
    joined_by = ";"
    while at < len(tokens):
        if (token := tokens[at]) in (";", "\n"):
            at += 1
            continue
        if token == ")" or (isinstance(token, Word) and token.raw in until):
            return entries, at
        pipeline, at = _parse_pipeline(tokens, at)
        entry = Entry(joined_by, pipeline)
        entries.append(entry)
        joined_by = ";"
        if at < len(tokens) and tokens[at] == "&":
            entry.in_background = True
            at += 1
        elif at < len(tokens) and tokens[at] in ("&&", "||"):
            joined_by = str(tokens[at])
            at += 1
    return entries, at


def _parse_pipeline(tokens: list[Word | str], at: int) -> tuple[list[Piece], int]:
    pieces: list[Piece] = []
    while True:
        piece, at = _parse_piece(tokens, at)
        pieces.append(piece)
        if at < len(tokens) and tokens[at] == "|":
            at += 1
            continue
        return pieces, at


def _parse_piece(tokens: list[Word | str], at: int) -> tuple[Piece, int]:
    if (token := tokens[at]) == "(":
        body, at = _parse_list(tokens, at + 1, until=())
        return Group(body), _expect(tokens, at, ")")
    if isinstance(token, Word) and token.raw == "while":
        condition, at = _parse_list(tokens, at + 1, until=("do",))
        body, at = _parse_list(tokens, _expect(tokens, at, "do"), until=("done",))
        return Loop(body, condition=condition), _expect(tokens, at, "done")
    if isinstance(token, Word) and token.raw == "for":
        return _parse_for(tokens, at)
    return _parse_simple(tokens, at)


def _parse_for(tokens: list[Word | str], at: int) -> tuple[Piece, int]:
    name = tokens[at + 1]
    at = _expect(tokens, at + 2, "in")
    items = []
    while at < len(tokens) and isinstance(item := tokens[at], Word):
        items.append(item)
        at += 1
    at = _expect(tokens, at + 1, "do")
    body, at = _parse_list(tokens, at, until=("done",))
    assert isinstance(name, Word)
    return Loop(body, name=name.raw, items=items), _expect(tokens, at, "done")


def _parse_simple(tokens: list[Word | str], at: int) -> tuple[Piece, int]:
    simple = Simple()
    while at < len(tokens):
        token = tokens[at]
        if isinstance(token, Word):
            simple.words.append(token)
            at += 1
        elif token in (">&2", "2>&1"):
            simple.redirects.append((token, None))
            at += 1
        elif token in (">", ">>", "<", "2>"):
            target = tokens[at + 1] if at + 1 < len(tokens) else None
            if not isinstance(target, Word):
                raise NotUnderstood("a redirection leads nowhere")
            simple.redirects.append((token, target))
            at += 2
        else:
            break
    if not simple.words and not simple.redirects:
        raise NotUnderstood(f"a command was expected at {tokens[at : at + 3]!r}")
    return simple, at


def _expect(tokens: list[Word | str], at: int, what: str) -> int:
    token = tokens[at] if at < len(tokens) else None
    if (token.raw if isinstance(token, Word) else token) != what:
        raise NotUnderstood(f"{what!r} was expected, not {token!r}")
    return at + 1


def _expand(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] is not None:
            return str(_sum(_expand(match[1], variables), variables))
        return variables.get(match[2] or match[3], "")

    return _VARIABLE.sub(value, text)


def _sum(expression: str, variables: Mapping[str, str]) -> int:
    """Evaluates additions only: scripts for the fake need no more."""
    return sum(int(variables.get(term.strip(), term) or 0) for term in expression.split("+"))

"""The grammar of the fake's shell: enough of `sh` for the contract suite, refused loudly beyond that.

Lists of pipelines of commands; quotes, variables and `$((…))`; redirections; `( )`, `while`, `for`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

OPERATORS = ("&&", "||", ">>", "2>&1", ">&2", "2>", ";", "&", "|", "(", ")", ">", "<", "\n")
_VARIABLE = re.compile(r"\$\(\(([^()]*)\)\)|\$\{(\w+)\}|\$(\w+|\?|\$)")


class NotUnderstood(Exception):
    """The script is beyond the fake's shell."""


@dataclass(frozen=True, slots=True)
class Word:
    # (text, how it was quoted: "'", '"' or "" for not at all)
    parts: tuple[tuple[str, str], ...]

    @property
    def raw(self) -> str:
        return "".join(text for text, _ in self.parts)

    def expand(self, variables: Mapping[str, str]) -> str:
        return "".join(text if quote == "'" else _expand(text, variables) for text, quote in self.parts)

    def split(self, variables: Mapping[str, str]) -> list[str]:
        """As the shell does: a bare variable becomes as many words as it holds."""
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
    """One pipeline and how it hangs on the one before: `;`, `&&` or `||`."""

    joined_by: str
    pipeline: list[Piece]
    in_background: bool = False


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
        char = script[at]
        if char in "'\"":
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
        token = tokens[at]
        if token in (";", "\n"):
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
    token = tokens[at]
    if token == "(":
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
    """Additions only: counters are all that scripts for the fake need."""
    return sum(int(variables.get(term.strip(), term) or 0) for term in expression.split("+"))

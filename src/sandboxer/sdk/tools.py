"""What models call: every tool with its name, its words and the JSON schema of what it takes.

`tools.json` is written from the table of operations (`make generate`). A tool is carried by
`client.tools.run(name, arguments)`, by the platform's MCP server, or by the adapter of a framework; none of
them knows an operation. Nothing here sends anything.

    for tool in tools("core"):
        print(tool.name, tool.description, tool.schema)
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from sandboxer.sdk.bodies import body_of
from sandboxer.sdk.call import Answer, Call, found_at, new_idempotency_key
from sandboxer.sdk.commands import MARGIN_S, ServerEvent, raise_problem
from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.wire.next_steps import Door

# `core`: the dozen with which most can be done. `standard`: what an agent may want. `all`: all there is.
Offer = Literal["core", "standard", "all"]
OFFERS: tuple[Offer, ...] = ("core", "standard", "all")
# As next steps name an operation, with or without a query and backticks.
_ROUTE = re.compile(
    r"`?\b((?:GET|POST|PUT|PATCH|DELETE) /v1/[^\s`?,;:)]*[^\s`?,;:).])(?:\?[^\s`,;)]*[^\s`,;).])?`?"
)
# Of a file, in one answer; a range asks for the rest.
MOST_SHOWN = 256 * 1024


class UnknownTool(SdkError):
    """There is no tool of this name."""

    code = "unknown_tool"


class WrongArguments(SdkError):
    """A tool was given what it does not take, or not what it needs."""

    code = "wrong_arguments"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers: text for the model, and the same as JSON for its program."""

    text: str
    structured: Mapping[str, Any] | None = None
    is_error: bool = False
    # Of an answer that is no text.
    content: bytes | None = field(default=None, repr=False)
    # What is to be paid first (x402's PaymentRequired), where nobody has paid it yet.
    payment: Mapping[str, Any] | None = None
    # How a payment that came with the call was settled, as the header of the answer says it.
    settled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One operation as a model calls it."""

    name: str
    # Id of the operation, as in the OpenAPI document.
    operation: str
    # Its method and path, as the platform names it when it says what to do next.
    route: str
    offer: Offer
    # One line.
    description: str
    # The object that it takes, as JSON Schema.
    schema: Mapping[str, Any]
    # The builder of its call (`module:function` in `sdk.calls`).
    call: str
    answer: Literal["json", "bytes"]
    # Builder of the call that shows the thing which is named, its argument, and what is found by it.
    through: tuple[str, str, str] | None = None
    # It changes nothing.
    is_read_only: bool = False
    # What was there before cannot be had back.
    is_lossy: bool = False
    # Twice does what once does.
    is_repeatable: bool = False
    # It runs the caller's program, asks a network, or pays.
    is_open: bool = False
    is_streamable: bool = False
    is_keyed: bool = False
    is_upload: bool = False
    # A stranger may pay for it; a stranger may ask.
    is_payable: bool = False
    is_public: bool = False

    def checked(self, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns the arguments that were given. Raises WrongArguments; the platform judges their values."""
        if not isinstance(arguments or {}, Mapping):
            # Models are asked for an object, and may answer with anything.
            raise WrongArguments(
                f"{self.name} takes an object.", next_step="Call it again with named arguments."
            )
        given = {name: value for name, value in (arguments or {}).items() if value is not None}
        known: Mapping[str, Any] = self.schema["properties"]
        if unknown := sorted(given.keys() - known.keys()):
            raise WrongArguments(
                f"{self.name} takes no {', '.join(unknown)}.",
                next_step=f"It takes {', '.join(known) or 'nothing'}.",
            )
        if missing := [name for name in self.schema.get("required", ()) if name not in given]:
            raise WrongArguments(
                f"{self.name} needs {', '.join(missing)}.", next_step="Call it again with that."
            )
        return given

    def shows(self, given: dict[str, Any]) -> tuple[Call[bytes], str] | None:
        """Returns the call that finds what the path names, and which field of its answer that is. What it
        was asked by is taken out of `given`.
        """
        if self.through is None:
            return None
        builder, argument, finds = self.through
        return _built(builder)(given.pop(argument)).as_bytes(), finds

    def made(self, given: Mapping[str, Any]) -> Call[bytes]:
        """Returns the call of checked arguments."""
        words = dict(given)
        if self.is_keyed:
            # A call whose answer is lost is repeated by its carrier, never by the model.
            words["idempotency_key"] = new_idempotency_key()
        if self.is_upload:
            words["body"] = body_of(_content(words.pop("content"), words.pop("encoding", "utf-8")))
        call: Call[bytes] = _built(self.call)(**words).as_bytes()
        takes = words.get("timeout_s", words.get("wait_s", words.get("ttl_s")))
        if isinstance(takes, int | float) and not isinstance(takes, bool):
            call = call.within(max(takes + MARGIN_S, call.timeout_s or 0))
        return call

    def streams(self, given: Mapping[str, Any]) -> bool:
        """Says whether the output of what it runs can be told piece by piece, as text."""
        return self.is_streamable and given.get("encoding", "utf-8") == "utf-8"

    def result(self, answer: Answer, *, is_whole: bool = True) -> ToolResult:
        """Returns what an answer says."""
        if self.answer == "json":
            return said(json.loads(answer.content)) if answer.content else ToolResult("done", {"done": True})
        try:
            text = answer.content.decode()
        except UnicodeDecodeError as error:
            if is_whole or error.start < len(answer.content) - 3:
                return _binary(answer.content, is_whole)
            # A part may end within a character.
            text = answer.content[: error.start].decode()
        if not is_whole:
            text += f"\n[the first {len(answer.content)} bytes; ask for the rest with `range`]"
        return ToolResult(text)


def _in_tools(text: str) -> str:
    """Returns what the platform said with tools in the place of routes: a model sends no requests."""
    return _ROUTE.sub(_tool_at, text)


def _tool_at(found: re.Match[str]) -> str:
    for pattern, name in _routes():
        if pattern.fullmatch(found[1]):
            return f"`{name}`"
    return found[0]


@cache
def _routes() -> Sequence[tuple[re.Pattern[str], str]]:
    """The route of each tool, the smaller offers first; whatever stands for a name in it."""
    known = sorted(_table().values(), key=lambda one: OFFERS.index(one.offer))
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(one.route))), one.name) for one in known]


def tools(what: Offer | Sequence[str] = "standard") -> Sequence[Tool]:
    """Returns the tools of an offer and of those that are smaller, or those that are named."""
    if not isinstance(what, str):
        return [tool_named(name) for name in what]
    if what not in OFFERS:
        raise UnknownTool(
            f"There are no tools {what!r}.",
            next_step=f"Say one of: {', '.join(OFFERS)}; or a list of names.",
        )
    offered = OFFERS[: OFFERS.index(what) + 1]
    return [tool for tool in _table().values() if tool.offer in offered]


def tool_named(name: str) -> Tool:
    """Returns the tool of this name. Raises UnknownTool."""
    try:
        return _table()[name]
    except KeyError:
        raise UnknownTool(f"There is no tool {name[:80]!r}.", next_step="List the tools.") from None


@cache
def _table() -> Mapping[str, Tool]:
    text = resources.files(__package__).joinpath("tools.json").read_bytes()
    return {one["name"]: _tool(one) for one in json.loads(text)}


def _tool(one: dict[str, Any]) -> Tool:
    if (through := one.get("through")) is not None:
        one["through"] = tuple(through)
    return Tool(**one)


def _built(place: str) -> Any:
    return found_at(f"{__package__}.calls.{place}")


def _content(text: object, encoding: object) -> bytes:
    if not isinstance(text, str):
        raise WrongArguments("`content` is a text.")
    if encoding != "base64":
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise WrongArguments("`content` is not base 64.") from None


def _binary(content: bytes, is_whole: bool) -> ToolResult:
    words = "" if is_whole else ", the beginning of more"
    shown = {"encoding": "base64", "content": base64.b64encode(content).decode(), "is_whole": is_whole}
    return ToolResult(f"[{len(content)} bytes that are no text{words}]", shown, content=content)


def said(value: Any) -> ToolResult:
    """Returns the result that says this JSON."""
    structured = value if isinstance(value, dict) else {"items": value}
    return ToolResult(json.dumps(value, ensure_ascii=False, separators=(",", ":")), structured)


def without_secret(result: ToolResult) -> ToolResult:
    """Returns the result without the secret of the key in it."""
    structured = dict(result.structured or {})
    key = {**structured["key"], "secret_key": "kept by the client, which signs with it"}
    return said({**structured, "key": key})


# Of a problem, what a result says in its own words.
_SAID = frozenset({"type", "title", "status", "detail", "code", "next_step", "fault", "request_id"})


def refused(error: SdkError) -> ToolResult:
    """Returns the result that says what went wrong, and what to do now."""
    detail, step = str(error), error.next_step
    if isinstance(error, ApiError):
        detail, step = _in_tools(error.said(Door.HTTP)), _in_tools(error.next(Door.HTTP))
    structured: dict[str, Any] = {"code": error.code, "detail": detail, "next_step": step}
    if isinstance(error, ApiError):
        structured |= {"status": error.status, "fault": error.fault}
        structured |= {name: fact for name, fact in error.problem.items() if name not in _SAID}
    text = f"{detail.rstrip('.')}. {step}".strip()
    if errors := structured.get("errors"):
        text += " " + json.dumps(errors, ensure_ascii=False)
    payment = error.payment if isinstance(error, ApiError) else None
    return ToolResult(text, structured, is_error=True, payment=payment)


class Gathering:
    """Puts a streamed answer together again, for who wants to see how it goes on."""

    def __init__(self) -> None:
        self._output: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._last: dict[str, Any] = {}
        self._shown: list[Any] = []

    def feed(self, event: ServerEvent) -> str | None:
        """Takes an event; returns the output that it brought. Raises what broke the stream."""
        raise_problem(event)
        if event.name in self._output:
            piece = str(json.loads(event.data)["data"])
            self._output[event.name].append(piece)
            return piece
        if event.name == "output":
            return str(json.loads(event.data)["text"])
        if event.name == "result":
            self._shown.append(json.loads(event.data)["data"])
        elif event.name not in ("progress", "ready"):
            self._last |= json.loads(event.data)
        return None

    def result(self) -> ToolResult:
        """Returns what it came to, when it has ended."""
        gathered = {name: "".join(pieces) for name, pieces in self._output.items()}
        has_run = any(gathered.values()) or "exit_code" in self._last
        whole = {**self._last, **(gathered if has_run else {})}
        return said({**whole, "results": self._shown} if self._shown else whole)

"""The Connect protocol, in its JSON form, as E2B's clients speak it to the daemon inside a sandbox.

Messages of a stream are in envelopes: a byte of flags, four bytes of length, JSON. The last one of an answer
says that it is the end, and how it went. Our problems are said in E2B's words, with our own in the message:
what happened and what to do next.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from sandboxer.edges.http.bodies import EventStream, StreamEvent
from sandboxer.edges.http.problems import invalid
from sandboxer.kernel.budget import SMALL, Lease, Shape
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.e2b.control import Said
from sandboxer.wire.processes import STDIN_MAX

M = TypeVar("M", bound=Said)
STREAM = "application/connect+json"
# The flag of an envelope that ends a stream.
END = 2
_HEAD = struct.Struct(">BI")
_MOST = 2 * STDIN_MAX
# What E2B's own proxy says of a sandbox that is gone or paused; clients look for these words.
NOT_RUNNING = "The sandbox was not found"
# And what its clients say when one ends under a request.
_ENDED = "the sandbox was killed or reached its end of life while the request was in flight"
_CODES: Mapping[int, str] = {
    400: "invalid_argument",
    401: "unauthenticated",
    402: "failed_precondition",
    403: "permission_denied",
    404: "not_found",
    409: "failed_precondition",
    413: "resource_exhausted",
    429: "resource_exhausted",
    500: "internal",
    502: "unavailable",
    503: "unavailable",
    507: "resource_exhausted",
}
# What E2B says with another status than we do.
_STATUS = {"disk_full": 507}
_NOT_THERE = frozenset({422, 428})


def status_of(problem: Mapping[str, Any]) -> int:
    ours = int(problem["status"])
    return _STATUS.get(problem["code"], 400 if ours in _NOT_THERE else ours)


def message_of(problem: Mapping[str, Any]) -> str:
    return f"{str(problem['detail']).rstrip('.')}. {problem['next_step']}"


def error_of(problem: Mapping[str, Any]) -> dict[str, str]:
    """Returns the problem as an error of Connect."""
    if problem["code"] == "path_exists":
        return {"code": "already_exists", "message": message_of(problem)}
    if is_of_sandbox(problem):
        return {"code": "unavailable", "message": f"{NOT_RUNNING}: {_ENDED}: {message_of(problem)}"}
    if problem.get("reason") == "timed_out":
        return {"code": "deadline_exceeded", "message": message_of(problem)}
    return {"code": _CODES.get(status_of(problem), "unknown"), "message": message_of(problem)}


def is_of_sandbox(problem: Mapping[str, Any]) -> bool:
    """Tells whether it is the sandbox that is not there, and not something in it."""
    if problem["code"] == "not_found":
        return bool(problem.get("what") == "sandbox")
    return problem["code"] in ("illegal_transition", "backend_lost")


def envelope(data: bytes, flags: int = 0) -> bytes:
    return _HEAD.pack(flags, len(data)) + data


@brief_value_class
class Enveloped:
    """A message of a stream."""

    said: Mapping[str, Any]
    flags: int = 0
    # Nothing follows: the end of the stream is said with it, and not by a piece of its own.
    is_last: bool = False

    def pieces(self) -> Iterator[bytes]:
        said = envelope(json.dumps(self.said).encode(), self.flags)
        yield said + envelope(b"{}", END) if self.is_last else said


class ConnectStream(EventStream):
    """Sends messages as they come; between them, whatever keeps a quiet stream open."""

    media_type = STREAM

    def __init__(
        self, request: Request, source: AsyncIterator[Mapping[str, Any]], quiet: Mapping[str, Any]
    ) -> None:
        super().__init__(_ended(source))
        self.heartbeat = envelope(json.dumps(quiet).encode())
        every = request.headers.get("keepalive-ping-interval", "")
        if every.isascii() and every.isdigit():
            self.heartbeat_s = min(max(float(every), 1.0), 3600.0)

    def _problem(self, problem: Mapping[str, Any]) -> StreamEvent:
        return Enveloped({"error": error_of(problem)}, END)


async def _ended(source: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[StreamEvent]:
    async with aclosing(source) as messages:  # type: ignore[type-var]
        async for message in messages:
            if "end" in message.get("event", ()):
                yield Enveloped(message, is_last=True)
                return
            yield Enveloped(message)
    yield Enveloped({}, END)


def single_message(body: bytes, model: type[M]) -> M:
    """Returns the one message of a request that is answered by a stream."""
    if len(body) < _HEAD.size or _HEAD.unpack_from(body) != (0, len(body) - _HEAD.size):
        raise InvalidRequest(field="body", why="it is not one uncompressed message of Connect")
    return _read(body[_HEAD.size :], model)


async def messages(chunks: AsyncIterator[bytes], model: type[M], lease: Lease) -> AsyncIterator[M]:
    """Yields the messages of a body as they arrive. One at a time is held, and counts for the caller."""
    held = bytearray()
    async for chunk in chunks:
        await lease.grow(len(chunk))
        held += chunk
        while len(held) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(held)
            if flags not in (0, END) or size > _MOST:
                raise InvalidRequest(field="body", why="a message is compressed, or too large")
            end = _HEAD.size + size
            if len(held) < end:
                break
            data = bytes(held[_HEAD.size : end])
            del held[:end]
            if flags == END:
                if held:
                    # Not passed over: thousands of ends in a piece would keep everybody waiting.
                    raise InvalidRequest(field="body", why="it goes on after its end")
                return
            yield await _read_in_turn(data, model, lease)
            lease.shrink(end)
    if held:
        raise InvalidRequest(field="body", why="it ends in the middle of a message")


async def _read_in_turn(data: bytes, model: type[M], lease: Lease) -> M:
    """Reads a message as the whole body of a request is read: what has too much structure is refused, large
    ones are read beside the loop, and others have their turn between small ones.
    """
    Shape.check(data)
    if len(data) <= SMALL:
        await lease.in_turn(0.0)
    return await lease.work(len(data), partial(_read, data, model))


def _read(data: bytes, model: type[M]) -> M:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise invalid([dict(found) for found in error.errors(include_url=False)], None) from None

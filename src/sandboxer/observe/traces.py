"""Says which trace a request belongs to (W3C Trace Context), for logs, commands and a collector of spans.

A request that nobody looks at costs one small object: ids are made when a log line, a command or a collector
wants them.

`write_logs` says how the server's log looks: lines for people, or JSON that names the request and the trace
of each line.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol

from sandboxer.kernel.values import brief_value_class, value_class

# Of the environment, as tools that read it expect.
TRACEPARENT = "TRACEPARENT"
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_MAX = 512
_SAMPLED = 0x01
# The request that is being served, also in tasks and threads that it starts.
CURRENT: ContextVar[RequestTrace | None] = ContextVar("sandboxer.request", default=None)
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Facts of a record beside its words: a mapping that is given as `extra={FACTS: …}`.
FACTS = "facts"
Attribute = str | int | float | bool


@brief_value_class
class Trace:
    """Names a span's place in a trace."""

    trace_id: str
    span_id: str
    # The span it is part of; None: it begins the trace.
    parent_id: str | None
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """Returns the header for whoever continues this trace."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.is_sampled else 0:02x}"

    def child(self) -> Trace:
        return Trace(self.trace_id, _new_span(), self.span_id, self.is_sampled)


@value_class
class Span:
    """Describes something that took a while, for a collector."""

    name: str
    trace: Trace
    began_ns: int
    ended_ns: int
    attributes: Mapping[str, Attribute]
    is_failed: bool = False
    # Of a request that was served; else of something within.
    is_request: bool = False


class SpanSink(Protocol):
    """Sends spans to a collector. Never blocks, never raises; what cannot be delivered is dropped."""

    def record(self, span: Span) -> None: ...

    def close(self) -> None:
        """Delivers what is left. May block for some seconds."""
        ...


def read(header: bytes) -> Trace | None:
    """Reads the span that a caller names; None if it is not valid."""
    found = _FORM.fullmatch(header) if len(header) <= _MAX else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    # Version 00 ends here; later ones may say more. Zeros name nothing.
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    if not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return Trace(trace_id.decode(), span_id.decode(), None, bool(int(flags, 16) & _SAMPLED))


class RequestTrace:
    """Holds a request's id, and its span in the trace that its caller named or in one of its own."""

    __slots__ = ("_asked", "_command", "_given", "_own", "request_id")

    def __init__(self, request_id: str, given: bytes | None = None) -> None:
        self.request_id = request_id
        self._given = None if given is None else read(given)
        self._own: Trace | None = None
        self._command: Trace | None = None
        self._asked = False

    @property
    def trace(self) -> Trace:
        if self._own is None:
            given = self._given
            self._own = Trace(secrets.token_hex(16), _new_span(), None) if given is None else given.child()
        return self._own

    @property
    def is_propagated(self) -> bool:
        """Says whether the caller takes part in tracing: it sent a trace, or asked for one."""
        return self._given is not None or self._asked

    def command(self) -> Trace:
        """Returns the span of the command that this request runs."""
        if self._command is None:
            self._command = self.trace.child()
        return self._command

    def environment(self, env: Mapping[str, str], *, is_asked: bool) -> Mapping[str, str]:
        """Returns the environment of a command, with `TRACEPARENT` unless the caller set it."""
        self._asked = self._asked or is_asked
        if not self.is_propagated or TRACEPARENT in env:
            return env
        return {**env, TRACEPARENT: self.command().traceparent}


def _new_span() -> str:
    return secrets.token_hex(8)


def command_environment(env: Mapping[str, str], *, is_asked: bool) -> Mapping[str, str]:
    request = CURRENT.get()
    return env if request is None else request.environment(env, is_asked=is_asked)


def write_logs(level: str, form: str) -> None:
    """Sets the form of the log, on stderr, for the whole process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonLines(logging.Formatter):
    """Writes one JSON object a line, with `request_id`, `trace_id` and `span_id` while a request is
    served.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := CURRENT.get():
            line["request_id"] = request.request_id
            line["trace_id"], line["span_id"] = request.trace.trace_id, request.trace.span_id
        line.update(getattr(record, FACTS, {}))
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

"""Server-sent events out of text lines, as a small machine both clients feed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str
    id: str | None


class EventParser:
    """Feed it lines; it returns an event whenever one is complete."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, line: str) -> ServerEvent | None:
        if not line:
            return self._complete()
        if line.startswith(":"):
            return None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None

    def _complete(self) -> ServerEvent | None:
        if not self._data and not self._name:
            return None
        event = ServerEvent(self._name or "message", "\n".join(self._data), self._id)
        self._name, self._data = "", []
        return event

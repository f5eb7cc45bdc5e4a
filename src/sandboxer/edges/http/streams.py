"""Output of commands as events: bytes become text without ever cutting a character in two."""

from __future__ import annotations

import base64
import codecs

from sandboxer.backends.guest import Output, Stream
from sandboxer.edges.http.sse import ServerEvent
from sandboxer.wire.exec import ExecOutput


class OutputEvents:
    """Turns pieces of two streams into events, and knows how far each stream was told."""

    def __init__(self, encoding: str, *, stdout_at: int = 0, stderr_at: int = 0) -> None:
        self._is_text = encoding == "utf-8"
        self._told = {Stream.STDOUT: stdout_at, Stream.STDERR: stderr_at}
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in Stream}
        self._held = dict.fromkeys(Stream, 0)

    @property
    def position(self) -> str:
        """What to give as `after` (or Last-Event-ID) to go on from here."""
        return f"{self._told[Stream.STDOUT]}.{self._told[Stream.STDERR]}"

    def piece(self, output: Output) -> ServerEvent | None:
        """None while all there is, is the beginning of a character."""
        stream = output.stream
        if not self._is_text:
            self._told[stream] += output.dropped + len(output.data)
            return self._event(stream, base64.b64encode(output.data).decode(), output.dropped)
        text = self._decoders[stream].decode(output.data)
        held = len(self._decoders[stream].getstate()[0])
        self._told[stream] += output.dropped + len(output.data) + self._held[stream] - held
        self._held[stream] = held
        return self._event(stream, text, output.dropped) if text or output.dropped else None

    def rest(self) -> list[ServerEvent]:
        """What an unfinished character leaves behind at the very end."""
        events = []
        for stream in Stream:
            if text := self._decoders[stream].decode(b"", final=True):
                self._told[stream] += self._held[stream]
                self._held[stream] = 0
                events.append(self._event(stream, text, 0))
        return events

    def _event(self, stream: Stream, data: str, dropped: int) -> ServerEvent:
        shown = ExecOutput.model_construct(data=data, dropped=dropped, offset=self._told[stream])
        return ServerEvent(stream.value, shown, self.position)


def in_words(data: bytes | bytearray, encoding: str) -> str:
    return data.decode("utf-8", "replace") if encoding == "utf-8" else base64.b64encode(data).decode()


def in_bytes(text: str, encoding: str) -> bytes:
    """Raises ValueError for text that is not base 64."""
    return text.encode() if encoding == "utf-8" else base64.b64decode(text, validate=True)

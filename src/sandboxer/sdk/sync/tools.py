# Written by scripts/generate-sync from sdk/aio/tools.py. Do not edit.
"""Tools that models call, blocking."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sandboxer.sdk.call import Answer, Call
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.exchange import PAYMENT_RESPONSE, PAYMENT_SIGNATURE
from sandboxer.sdk.sync.line import MOST_HELD, Line, Noun, server_events
from sandboxer.sdk.tools import (
    MOST_SHOWN,
    Gathering,
    Offer,
    Tool,
    ToolResult,
    refused,
    tool_named,
    tools,
    without_secret,
)


class Tools(Noun):
    """Every operation as a tool that a model can call (`sandboxer.sdk.tools`)."""

    def list(self, offer: Offer = "standard") -> Sequence[Tool]:
        """Returns the tools: `core`, the dozen with which most can be done; `standard`; or `all`.

        Examples:
            >>> print(client.tools.list("core")[0].name)
        """
        return tools(offer)

    def run(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_output: Callable[[str], None] | None = None,
        payment: str | None = None,
    ) -> ToolResult:
        """Calls a tool. What is refused is a result with `is_error`, for the model to read.

        `on_output` is called with each piece that a running program prints, where the tool runs one.
        `payment` is a payment that was signed elsewhere, as the header PAYMENT-SIGNATURE has it.

        Examples:
            >>> result = client.tools.run("execute", {"code": "print(6 * 7)", "language": "python"})
            >>> print(result.text)
        """
        try:
            tool = tool_named(name)
            given = tool.checked(arguments)
            if (found := tool.shows(given)) is not None:
                shown = json.loads(self._line.send(found[0]))
                given[found[1]] = shown[found[1]]
            call = tool.made(given)
            if payment is not None:
                call = replace(call, headers={**call.headers, PAYMENT_SIGNATURE: payment})
            if on_output is not None and tool.streams(given):
                return _streamed(self._line, call, on_output)
            return _whole(self._line, tool, call, is_ours=payment is None)
        except SdkError as error:
            return refused(error)


def _streamed(line: Line, call: Call[bytes], on_output: Callable[[str], None]) -> ToolResult:
    gathering = Gathering()
    for event in server_events(line, call.streamed()):
        if (output := gathering.feed(event)) is not None:
            on_output(output)
    return gathering.result()


def _whole(line: Line, tool: Tool, call: Call[bytes], *, is_ours: bool) -> ToolResult:
    most = MOST_SHOWN if tool.answer == "bytes" else MOST_HELD
    content = bytearray()
    with line.open(call) as response:
        for piece in response.iter_bytes():
            content += piece
            if len(content) > most:
                break
    answer = Answer(response.status_code, response.headers, bytes(content[:most]))
    result = tool.result(answer, is_whole=len(content) <= most)
    if line.signer.learn_key(answer) and is_ours:
        # We paid, and sign with it from now on: a model has no use for it.
        result = without_secret(result)
    return replace(result, settled=response.headers.get(PAYMENT_RESPONSE))

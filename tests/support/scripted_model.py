"""A local server that speaks OpenAI's API and replays a plan: what a model would say, without one.

Of each request it takes what the last tool answered out of the conversation; a step names answers of earlier
steps as `$TOOL.field`. So the plan goes on only if the framework carried every call and every answer.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Step(NamedTuple):
    """A tool, and what it is called with."""

    tool: str
    arguments: dict[str, Any]


@dataclass
class Script:
    """What the model says, one reply after the other; then `end`."""

    steps: Sequence[Step]
    end: Step | str = "all is done"
    # As text, for programs that know no tool calls.
    is_plain: bool = False
    offered: set[str] = field(default_factory=set)
    answers: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    asked: int = 0

    def next(self, conversation: Any) -> Step | str:
        """Takes the answer of the step before, and returns the next one."""
        if self.asked:
            self._keep(self.steps[self.asked - 1].tool if self.asked <= len(self.steps) else "", conversation)
        self.asked += 1
        if self.asked > len(self.steps):
            return self.end
        tool, arguments = self.steps[self.asked - 1]
        return Step(tool, {name: self._filled(value) for name, value in arguments.items()})

    def _keep(self, tool: str, conversation: Any) -> None:
        if tool and (found := last_object_in(conversation)) is not None:
            self.answers[tool] = found
        elif tool:
            self.problems.append(f"{tool} answered nothing that is JSON: {str(conversation[-1:])[:400]}")

    def _filled(self, value: Any) -> Any:
        if not isinstance(value, str) or not (found := re.fullmatch(r"\$(\w+)\.(\w+)", value)):
            return value
        try:
            return self.answers[found[1]][found[2]]
        except KeyError:
            self.problems.append(f"{value} is in no answer: {self.answers.get(found[1])}")
            return "unknown"


def last_object_in(conversation: Any) -> dict[str, Any] | None:
    """Finds the last JSON object in what was said last, however it is wrapped."""
    decoder = json.JSONDecoder()
    for text in reversed(list(_texts(conversation[-1:]))):
        for start in (found.start() for found in re.finditer(r"\{", text)):
            try:
                value = decoder.raw_decode(text, start)[0]
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


@contextmanager
def scripted_model(script: Script) -> Iterator[str]:
    """Serves the script, and yields its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            for tool in asked.get("tools") or ():
                script.offered.add((tool.get("function") or tool)["name"])
            if self.path.endswith("/responses"):
                answer = responses(script, script.next(asked["input"]))
            else:
                answer = completion(script, script.next(asked["messages"]))
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def completion(script: Script, said: Step | str) -> dict[str, Any]:
    """A reply of `/chat/completions`."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(said, str):
        message["content"] = said
    elif script.is_plain:
        message["content"] = json.dumps({"command": {"name": said.tool, "args": said.arguments}})
    else:
        function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"id": f"call_{script.asked}", "type": "function", "function": function}]
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": f"chat_{script.asked}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def responses(script: Script, said: Step | str) -> dict[str, Any]:
    """A reply of `/responses`."""
    if isinstance(said, str):
        text = {"type": "output_text", "text": said, "annotations": []}
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    else:
        item = {
            "type": "function_call",
            "id": f"fc_{script.asked}",
            "call_id": f"call_{script.asked}",
            "name": said.tool,
            "arguments": json.dumps(said.arguments),
            "status": "completed",
        }
    return {
        "id": f"resp_{script.asked}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": "scripted",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }

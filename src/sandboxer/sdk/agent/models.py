"""Models that clones and immolants think with: any that speaks the form of chat completions over HTTP.

A sandbox writes the question and reads the answer. In between, the one who made it asks the model, so that no
network and no key is needed inside; or, where the sandbox was given a way out to the model alone, it asks by
itself, and the platform puts the key in outside.

`Scripted` is a model for examples and tests: a server of this machine that answers by a plan.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import httpx

from sandboxer.sdk.errors import SdkError, Unreachable
from sandboxer.sdk.sync.sandbox import Sandbox

ASK_S = 120.0
MOST_ANSWER = 4 * 1024 * 1024
# Runs in the sandbox: makes a request of a question, an answer of a response, or asks by itself.
THINK = """
import json, sys, urllib.error, urllib.request
given = json.load(sys.stdin)
if "choices" not in given:
    request = {"model": given["model"], "messages": given["messages"]}
    if not (url := given["url"]):
        sys.exit(print(json.dumps(request)))
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(url + "/chat/completions", json.dumps(request).encode(), headers)
    try:
        given = json.load(urllib.request.urlopen(asked, timeout=110))
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace")
        if "egress_denied" in said:
            sys.exit("the platform did not let the question out: " + json.loads(said)["detail"])
        sys.exit(f"the model at {url} answered {error.code}: {said[:200]}")
    except OSError as error:
        sys.exit(f"the model at {url} is not reached from inside: {error}")
print(given["choices"][0]["message"]["content"])
"""
Messages = Sequence[Mapping[str, str]]


class Failed(SdkError):
    """What was to be done in a sandbox did not work."""

    code = "agent_failed"
    next_step = "Look at the message; `sandboxer agent check NAME` says how a clone is."


class Model(Protocol):
    @property
    def name(self) -> str:
        """Returns what the model is called where it is asked."""

    @property
    def inside(self) -> str | None:
        """Returns where a sandbox asks by itself; None: it is asked for it."""

    def ask(self, request: bytes) -> bytes:
        """Returns the response to a request of chat completions."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an address, as `https://api.example.com/v1`."""

    url: str
    name: str
    key: str = field(default="", repr=False)
    # The name of a secret of the account that holds the key: then sandboxes ask by themselves.
    secret: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        # Elsewhere the platform does not read what is sent, and so puts nothing in.
        if self.secret is not None and (parts.scheme != "https" or parts.port not in (None, 443)):
            raise Failed(
                f"A secret is only put into requests by https to port 443, and the model is {self.url}.",
                next_step="Name one that answers there, or leave the secret out: then this machine asks.",
            )

    @property
    def inside(self) -> str | None:
        return None if self.secret is None else self.url

    @property
    def network(self) -> str | None:
        """What a sandbox that asks by itself may reach: the model, and nothing else."""
        if self.secret is None:
            return None
        return f"allow:{urlsplit(self.url).hostname}"

    def ask(self, request: bytes) -> bytes:
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {self.key}"} if self.key else {}
        )
        try:
            with httpx.stream(
                "POST", f"{self.url}/chat/completions", content=request, headers=headers, timeout=ASK_S
            ) as answer:
                content = _whole(answer)
        except httpx.HTTPError as error:
            raise Unreachable(
                f"The model at {self.url} does not answer: {_why(error)}.",
                next_step="Start it, or name another: --model-url.",
            ) from None
        if answer.status_code != 200:
            said = content[:200].decode(errors="replace")
            raise Failed(f"The model at {self.url} answered {answer.status_code}: {said}")
        return content

    def let_in(self, sandbox: Sandbox) -> None:
        """Has the platform put the key in, on the way to the model, so that it never is in the sandbox."""
        if self.secret is None:
            return
        host = urlsplit(self.url).hostname
        rules = [dict(rule) for rule in sandbox.egress.show().model_dump()["rules"]]
        key = {"host": host, "header": "Authorization", "secret": self.secret, "form": "Bearer {}"}
        sandbox.egress.replace(rules=rules, secrets=[key])


def _whole(answer: httpx.Response) -> bytes:
    """Reads an answer that comes to an end. Raises Failed for one that does not."""
    content, until = b"", time.monotonic() + ASK_S
    for part in answer.iter_bytes():
        content += part
        if len(content) > MOST_ANSWER or time.monotonic() > until:
            raise Failed(f"The answer of {answer.url} does not end: {len(content)} bytes came.")
    return content


def think(sandbox: Sandbox, model: Model, messages: Messages) -> str:
    """Returns what the model answers to a question that the sandbox writes. Raises Failed, Unreachable."""
    asked = {"model": model.name, "url": model.inside, "messages": list(messages)}
    said = _run(sandbox, json.dumps(asked))
    if model.inside is not None:
        return said.strip()
    _demand_same(sandbox, said, {"model": model.name, "messages": asked["messages"]})
    return _run(sandbox, model.ask(said.encode()).decode(errors="replace")).strip()


def _demand_same(sandbox: Sandbox, said: str, meant: Mapping[str, Any]) -> None:
    """Whoever asks the model pays for it: nothing is passed on that the sandbox was not told to ask."""
    try:
        is_same = json.loads(said) == meant
    except (ValueError, RecursionError):
        is_same = False
    if not is_same:
        raise Failed(f"{sandbox.id} asks the model something else than it was told to: {said[:80]!r}")


def _run(sandbox: Sandbox, told: str) -> str:
    done = sandbox.exec(["python3", "-c", THINK], stdin=told, timeout_s=ASK_S)
    if done.exit_code != 0:
        raise Failed(f"It could not think: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


# Answers everything, so that each example works without a model.
PLAN: Sequence[Mapping[str, Any]] = (
    {"when": r"You are the judge", "say": "Both were heard; the side for it is right."},
    {"when": r"You are the critic", "say": "It is right, and too short."},
    {"when": r"(?s)task: (.*)", "say": r"Done: \1"},
    {"when": r"", "say": "Yes."},
)


def _why(error: BaseException) -> str:
    """Says in words what went wrong, without numbers of the system or places in a text."""
    if isinstance(error, json.JSONDecodeError):
        return "it is no JSON"
    if isinstance(error, KeyError):
        return f"{error} is missing"
    said = getattr(error, "strerror", None) or re.sub(r"\[Errno -?\d+\] ", "", str(error))
    return said.rstrip(".") or type(error).__name__


def plan_of(file: Path) -> Sequence[Mapping[str, Any]]:
    """Reads a plan: a JSON list of `when` (a regular expression) and `say` (a text, or several in turn)."""
    try:
        plan = json.loads(file.read_text())
        for rule in plan:
            re.compile(rule["when"])
            if not isinstance(rule["say"], str | list) or not rule["say"]:
                raise ValueError("`say` is a text, or a list of texts")
    except (OSError, ValueError, KeyError, TypeError, re.error) as error:
        raise Failed(
            f"{file} is no plan of a model: {_why(error)}",
            next_step='Write a JSON list as [{"when": "capital", "say": "Paris"}].',
        ) from None
    return list(plan)


class Scripted:
    """A model that answers by a plan: the first rule whose `when` is found in the question says the answer.

    Examples:
        >>> with Scripted([{"when": "capital", "say": "Paris"}]) as model:
        ...     print(think(sandbox, model, [{"role": "user", "content": "The capital of France?"}]))
    """

    name = "scripted"
    inside: str | None = None

    def __init__(self, plan: Sequence[Mapping[str, Any]] = PLAN) -> None:
        self._plan = plan
        self._said: Counter[int] = Counter()
        self._one = threading.Lock()
        answer = self.answer

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                body = json.dumps(answer(asked)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                """Says nothing: each request would be a line."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def ask(self, request: bytes) -> bytes:
        return Endpoint(self.url, self.name).ask(request)

    def answer(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the response by the plan."""
        text = "\n".join(str(one["content"]) for one in asked["messages"])
        said = ""
        for number, rule in enumerate(self._plan):
            if found := re.search(rule["when"], text):
                says = [rule["say"]] if isinstance(rule["say"], str) else rule["say"]
                with self._one:
                    turn = min(self._said[number], len(says) - 1)
                    self._said[number] += 1
                said = found.expand(says[turn])
                break
        message = {"role": "assistant", "content": said}
        return {
            "object": "chat.completion",
            "model": "scripted",
            "choices": [{"index": 0, "message": message}],
        }

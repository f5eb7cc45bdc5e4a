"""A proxy in front of a real node that says other things about the node itself, or nothing for a while."""

from __future__ import annotations

import json
import threading
from decimal import Decimal
from typing import Any

import httpx

from testchains.http_face import Answer, HttpFace


class Refuses:
    """In place of an answer: the node says no, with this code."""

    def __init__(self, code: int) -> None:
        self.code = code


class Impostor:
    """`says`: what it answers to a JSON-RPC method or a REST path instead of the node; an object is laid over
    the node's own. Questions named in `held` are not answered until `let_go`."""

    def __init__(self, url: str, auth: httpx.Auth | None = None) -> None:
        self.says: dict[str, Any] = {}
        self.held: set[str] = set()
        self._may_answer = threading.Event()
        self._http = httpx.Client(base_url=url, auth=auth, timeout=60, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._face.stop()
        self._http.close()

    def let_go(self) -> None:
        self._may_answer.set()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        answer = self._http.request(method, path, content=body)
        kind = answer.headers.get("content-type", "")
        if not body:
            self._wait_for(path)
            said = self.says.get(path)
            return answer.status_code, kind, answer.content if said is None else str(said).encode()
        asked, shown = json.loads(body), json.loads(answer.text, parse_float=Decimal)
        for question, reply in zip(_listed(asked), _listed(shown), strict=True):
            self._wait_for(question["method"])
            self._bend(question["method"], reply)
        text = json.dumps(shown, default=lambda amount: f"@@{amount}@@")
        return answer.status_code, kind, text.replace('"@@', "").replace('@@"', "").encode()

    def _wait_for(self, question: str) -> None:
        if question in self.held:
            self._may_answer.wait(60)

    def _bend(self, question: str, reply: dict[str, Any]) -> None:
        said = self.says.get(question)
        if isinstance(said, Refuses):
            reply["result"], reply["error"] = None, {"code": said.code, "message": "no"}
        elif reply.get("error"):
            return
        elif isinstance(said, dict):
            reply["result"] = {**reply["result"], **said}
        elif said is not None:
            reply["result"] = said


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

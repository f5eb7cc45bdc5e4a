"""A proxy in front of a real node: writes down which calls pass, and can hold back the answers to some."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Collection

import httpx

from testchains.http_face import Answer, HttpFace


class Recorder:
    """`calls`: every method asked for, in order; `requests`: how many HTTP requests they took.

    Calls named in `held` reach the node at once, but their answer waits until `let_go`.
    """

    def __init__(self, url: str, auth: httpx.Auth | None = None) -> None:
        self.calls: list[str] = []
        self.requests = 0
        self.held: Collection[str] = ()
        self._may_answer = threading.Event()
        self._http = httpx.Client(base_url=url, auth=auth, timeout=60, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._face.stop()
        self._http.close()

    def clear(self) -> None:
        self.calls.clear()
        self.requests = 0

    def counted(self) -> Counter[str]:
        return Counter(self.calls)

    def let_go(self) -> None:
        self._may_answer.set()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        asked = json.loads(body) if body else []
        names = [each["method"] for each in (asked if isinstance(asked, list) else [asked])]
        self.requests += 1
        self.calls += names or [path]
        answer = self._http.request(method, path, content=body)
        if not set(names).isdisjoint(self.held):
            self._may_answer.wait(60)
        return answer.status_code, answer.headers.get("content-type", ""), answer.content

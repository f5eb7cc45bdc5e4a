"""Bad company for a platform: a node behind the real one, and a relay that forgets."""

from __future__ import annotations

import json

import httpx

from testchains.http_face import Answer, HttpFace


class StaleNode:
    """Passes questions on and remembers the answers; while `is_stale`, it gives the old ones again."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url
        self.is_stale = False
        self.is_remembering = True
        self._known: dict[str, Answer] = {}

    def __enter__(self) -> StaleNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._face.stop()
        self._http.close()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        if self.is_stale:
            return self._known.get(path, (404, "application/json", b'{"error": "not found"}'))
        said = self._http.request(method, path, content=body)
        answer = said.status_code, said.headers.get("content-type", ""), said.content
        if self.is_remembering:
            self._known[path] = answer
        return answer


class ForgetfulRelay:
    """Passes all on, until it has forgotten what became of any payment."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url
        # The whole answer to questions about payments; None: the real one.
        self.says: dict[str, str] | None = None
        self.asked = 0

    def __enter__(self) -> ForgetfulRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self._face.stop()
        self._http.close()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        if path.startswith("/settle/status/"):
            self.asked += 1
            if self.says is not None:
                return 404, "application/json", json.dumps(self.says).encode()
        kind = {"content-type": "application/json"}
        said = self._http.request(method, path, content=body, headers=kind)
        return said.status_code, "application/json", said.content

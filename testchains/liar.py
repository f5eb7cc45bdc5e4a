"""A node that lies: passes questions on to a real one and bends the answers about payments."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx

from testchains.http_face import Answer, HttpFace

# Changes the object of one payment in place.
Lie = Callable[[dict[str, Any]], None]


class Liar:
    def __init__(self, url: str, lie: Lie, auth: httpx.Auth | None = None) -> None:
        self._lie = lie
        self._http = httpx.Client(base_url=url, auth=auth, timeout=30, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url

    def __enter__(self) -> Liar:
        return self

    def __exit__(self, *_: object) -> None:
        self._face.stop()
        self._http.close()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        answer = self._http.request(method, path, content=body)
        kind = answer.headers.get("content-type", "")
        try:
            said = json.loads(answer.text, parse_float=Decimal)
        except ValueError:
            return answer.status_code, kind, answer.content
        self._bend(said)
        text = json.dumps(said, default=lambda amount: f"@@{amount}@@")
        return answer.status_code, kind, text.replace('"@@', "").replace('@@"', "").encode()

    def _bend(self, said: Any) -> None:
        if isinstance(said, list):
            for each in said:
                self._bend(each)
        elif isinstance(said, dict):
            if "txid" in said:
                self._lie(said)
            else:
                for each in said.values():
                    self._bend(each)

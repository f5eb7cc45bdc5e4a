"""A client that signs, and lets a test bend every part of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import httpx

EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Credentials:
    public_key: str
    secret_key: str

    def head(self, method: str, target: str, digest: str = EMPTY, **bent: str) -> dict[str, str]:
        """Headers of a v2 signature. `timestamp` and `nonce` may be given."""
        timestamp = bent.get("timestamp", str(int(time.time())))
        nonce = bent.get("nonce", secrets.token_urlsafe(18))
        line = f"v2:{timestamp}:{nonce}:{method}:{target}:{digest}"
        return {
            "authorization": f"Bearer {self.public_key}",
            "x-timestamp": timestamp,
            "x-nonce": nonce,
            "x-content-sha256": digest,
            "x-signature": hmac.new(self.secret_key.encode(), line.encode(), "sha256").hexdigest(),
        }

    def head_v1(self, method: str, target: str, body: bytes = b"", timestamp: str = "") -> dict[str, str]:
        timestamp = timestamp or str(int(time.time()))
        line = f"{timestamp}:{method}:{target}:".encode() + body
        return {
            "authorization": f"Bearer {self.public_key}",
            "x-timestamp": timestamp,
            "x-signature": hmac.new(self.secret_key.encode(), line, "sha256").hexdigest(),
        }


@dataclass
class ServerEvent:
    name: str
    data: Any
    id: str | None


@dataclass
class Client:
    http: httpx.AsyncClient
    credentials: Credentials

    def request(
        self,
        method: str,
        target: str,
        *,
        body: object = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Request:
        given = dict(headers or {})
        if content is None:
            content = b"" if body is None else json.dumps(body).encode()
            if body is not None:
                given.setdefault("content-type", "application/json")
        given |= self.credentials.head(method, target, hashlib.sha256(content).hexdigest())
        return self.http.build_request(method, target, content=content, headers=given)

    async def send(self, method: str, target: str, **words: Any) -> httpx.Response:
        return await self.http.send(self.request(method, target, **words))

    async def get(self, target: str, **words: Any) -> httpx.Response:
        return await self.send("GET", target, **words)

    async def post(self, target: str, body: object = None, **words: Any) -> httpx.Response:
        return await self.send("POST", target, body=body, **words)

    async def put(self, target: str, content: bytes, **words: Any) -> httpx.Response:
        return await self.send("PUT", target, content=content, **words)

    async def delete(self, target: str, **words: Any) -> httpx.Response:
        return await self.send("DELETE", target, **words)

    async def events(self, method: str, target: str, **words: Any) -> AsyncIterator[ServerEvent]:
        """Server-sent events until the stream ends; close the iterator to hang up."""
        words["headers"] = {"accept": "text/event-stream", **words.get("headers", {})}
        answer = await self.http.send(self.request(method, target, **words), stream=True)
        try:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            name, data, mark = "message", [], None
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
                elif line.startswith("id: "):
                    mark = line[4:]
                elif not line and data:
                    yield ServerEvent(name, json.loads("\n".join(data)), mark)
                    name, data = "message", []
        finally:
            await answer.aclose()


def target(path: str, /, **query: object) -> str:
    """Path with query, percent-encoded as it is signed and sent; bytes stay bytes."""
    from_pairs = "&".join(f"{name}={_quoted(value)}" for name, value in _pairs(query))
    return path + ("?" + from_pairs if from_pairs else "")


def _pairs(query: dict[str, object]) -> Iterable[tuple[str, object]]:
    for name, value in query.items():
        for item in value if isinstance(value, list) else [value]:
            yield name, item


def _quoted(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else value
    raw = text if isinstance(text, bytes) else str(text).encode()
    return "".join(chr(b) if (chr(b).isalnum() and b < 128) or b in b"/._-" else f"%{b:02X}" for b in raw)

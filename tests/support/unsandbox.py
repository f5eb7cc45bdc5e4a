"""Requests as clients of unsandbox send them, made of what is known of its wire and of no code of theirs."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.unsandbox import API_HOST, ROOT
from tests.support.platforms import Up

PATIENCE_S = 120


@dataclass(frozen=True)
class Key:
    public: str
    secret: str


def new_key(up: Up, account: str = "unsandbox") -> Key:
    """A key of an account that may sign as clients of unsandbox do."""
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        made = owner.keys.create("unsandbox", account, accepts_v1=True)
        return Key(made.public_key, made.secret_key)


@dataclass(frozen=True)
class Client:
    up: Up
    key: Key
    # By the name that is written into their clients, or below our path.
    by_name: bool = False
    # The paper's way to sign; else as shipped.
    paper: bool = False

    def send(
        self, method: str, path: str, body: object = None, *, signed: bytes | None = None, **headers: str
    ) -> httpx.Response:
        """`signed`: what is signed as the body, where that is not what is sent."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        root, named = ("", {"host": API_HOST}) if self.by_name else (ROOT, {})
        head = {**self._signed(method, path, sent if signed is None else signed), **named}
        head |= {
            "content-type": "application/json",
            **{one.replace("_", "-"): headers[one] for one in headers},
        }
        return httpx.request(
            method,
            f"{self.up.url}{root}{path}",
            content=sent,
            headers=head,
            timeout=PATIENCE_S,
            trust_env=False,
        )

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Returns the answer, which must be a success."""
        answer = self.send(method, path, body)
        assert answer.status_code in (200, 202), f"{method} {path}: {answer.status_code} {answer.text}"
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def wait(self, path: str, *states: str, field: str = "status") -> dict[str, Any]:
        """Asks until one of these is said, as their clients do."""
        return self.until(path, lambda seen: seen[field] in states)

    def until(self, path: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(seen := self.ask("GET", path)):
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
        return seen

    def _signed(self, method: str, path: str, body: bytes) -> dict[str, str]:
        at = str(int(time.time()))
        if self.paper:
            text = f"{method}{path}{at}{hashlib.sha256(body).hexdigest()}".encode()
            who = {"x-api-key": self.key.public}
        else:
            text = f"{at}:{method}:{path}:".encode() + body
            who = {"authorization": f"Bearer {self.key.public}"}
        signature = hmac.new(self.key.secret.encode(), text, hashlib.sha256).hexdigest()
        return {**who, "x-timestamp": at, "x-signature": signature}

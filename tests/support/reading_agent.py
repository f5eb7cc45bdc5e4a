"""A scripted agent that knows HTTP, HMAC and x402, and of this platform only what its text says.

Every address, header and body that it sends is read from the served text: it fills in the names in braces
with what it kept of earlier answers, or made as the text says.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from x402.http.utils import decode_payment_required_header, encode_payment_signature_header

from tests.support.payments.x402 import paying_client

_REQUEST = re.compile(r"```http\n(.*?)```(.*?)(?=\n###|\n## |\Z)", re.DOTALL)
_SIGNED_TEXT = re.compile(r"```text\n(.*?)\n```", re.DOTALL)
_KEEP = re.compile(r"^Keep: (.*)$", re.MULTILINE)


@dataclass
class ReadingAgent:
    http: httpx.AsyncClient
    # The private key of its EVM wallet; None if it has no money.
    wallet: str | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)

    async def follow(self, text: str) -> None:
        """Sends the requests of a text, one after the other."""
        found = _SIGNED_TEXT.search(text)
        assert found is not None, "the text does not say what is signed"
        for request, said in _REQUEST.findall(text):
            answer = await self._send(request, found[1])
            self.statuses.append(answer.status_code)
            assert answer.status_code < 300, answer.text
            self._keep(said, answer)

    async def _send(self, request: str, signed_text: str) -> httpx.Response:
        head, _, body = request.partition("\n\n")
        first, *lines = head.strip().splitlines()
        method, address = _filled(first, self.kept).split(" ", 1)
        names = {**self.kept, **self._signature(signed_text, method, address, body.strip().encode())}
        headers = dict(_filled(line, names).split(": ", 1) for line in lines)
        answer = await self.http.request(method, address, headers=headers, content=body.strip())
        if answer.status_code != 402 or self.wallet is None:
            return answer
        headers["payment-signature"] = await self._paid(answer.headers["payment-required"])
        return await self.http.request(method, address, headers=headers, content=body.strip())

    def _signature(self, text: str, method: str, address: str, body: bytes) -> dict[str, str]:
        if "secret_key" not in self.kept:
            return {}
        parts = urlsplit(address)
        names = {
            "timestamp": str(int(time.time())),
            "nonce": secrets.token_hex(16),
            "METHOD": method,
            "path_with_query": parts.path + (f"?{parts.query}" if parts.query else ""),
            "content_sha256": hashlib.sha256(body).hexdigest(),
        }
        key = self.kept["secret_key"].encode()
        names["signature"] = hmac.new(key, _filled(text, names).encode(), hashlib.sha256).hexdigest()
        return names

    async def _paid(self, offers: str) -> str:
        assert self.wallet is not None
        payload = await paying_client(self.wallet).create_payment_payload(
            decode_payment_required_header(offers)
        )
        return encode_payment_signature_header(payload)

    def _keep(self, said: str, answer: httpx.Response) -> None:
        for line in _KEEP.findall(said):
            for wish in line.split(", "):
                name, _, path = wish.partition(" = ")
                value: Any = json.loads(answer.content)
                for step in path.split("."):
                    value = value[step]
                self.kept[name] = value


def _filled(text: str, names: dict[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(names[found[1]]), text)

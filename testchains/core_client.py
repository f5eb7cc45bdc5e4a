"""A blocking JSON-RPC client for Core-style nodes, for the miner's and the bank's side. The product has its
own, and must not be tested with itself."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import httpx


class RpcError(RuntimeError):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class CoreClient:
    def __init__(self, url: str, user: str, password: str, wallet: str | None = None) -> None:
        self._path = f"/wallet/{wallet}" if wallet else "/"
        # A node waits for open connections when it stops, so none is kept.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(
            base_url=url, auth=(user, password), timeout=60, trust_env=False, limits=limits
        )

    def call(self, method: str, *params: Any) -> Any:
        # Numbers are written by hand: a Decimal must reach the node as the digits it is.
        body = json.dumps({"id": 1, "method": method, "params": params}, default=str)
        answer = json.loads(self._http.post(self._path, content=body).text, parse_float=Decimal)
        if answer["error"] is not None:
            raise RpcError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def close(self) -> None:
        self._http.close()

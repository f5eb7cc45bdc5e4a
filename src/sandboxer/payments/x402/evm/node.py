"""A node's JSON-RPC, asked with a deadline; what it says in error is `ChainUnavailable`."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from sandboxer.kernel.errors import ChainUnavailable

TIMEOUT_S = 10.0


class Node:
    def __init__(self, url: str, client: httpx.AsyncClient, *, network: str) -> None:
        self._url = url
        self._client = client
        self._network = network
        self._count = itertools.count(1)

    async def call(self, method: str, params: list[Any]) -> Any:
        """The result; None where the node knows nothing."""
        question = {"jsonrpc": "2.0", "id": next(self._count), "method": method, "params": params}
        try:
            answer = await self._client.post(self._url, json=question, timeout=TIMEOUT_S)
            answer.raise_for_status()
            document = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            why = f"the node does not answer {method}: {type(error).__name__}"
            raise ChainUnavailable(chain=self._network, why=why) from None
        if not isinstance(document, dict) or "result" not in document:
            raise ChainUnavailable(chain=self._network, why=f"the node refused {method}")
        return document["result"]

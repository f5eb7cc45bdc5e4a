"""A node that passes every question on to the real one, and answers as a bad one would.

`behind` blocks ago is what it takes for the newest; `lies` is one of the other faults that nodes have.
"""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from testchains.evm import Anvil
from testchains.http_face import Answer, HttpFace

# What it may say of a payment that is there.
NULL_RECEIPTS = "null receipts"
FORGETFUL = "no receipt, no event, nonce unspent"
OTHER_FORK = "another block at every height, nonce unspent"
OTHER_CHAIN = "another chain's id"
SLOW = "slow"
_LATEST = ("latest", "pending", "safe", "finalized")


class LyingNode:
    def __init__(self, chain: Anvil) -> None:
        self._http = httpx.Client(base_url=chain.url, timeout=30, trust_env=False)
        self._face = HttpFace(self._route)
        self.url = self._face.url
        self.behind = 0
        self.lies = ""
        self.asked: list[str] = []

    def __enter__(self) -> LyingNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._face.stop()
        self._http.close()

    def is_honest(self) -> None:
        self.behind, self.lies = 0, ""

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        question = json.loads(body)
        if isinstance(question, list):
            answer: object = [self._answer(one) for one in question]
        else:
            answer = self._answer(question)
        return 200, "application/json", json.dumps(answer).encode()

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(question["method"])
        if self.lies == SLOW:
            time.sleep(12)
        head = int(self._real("eth_blockNumber", [])["result"], 16) - self.behind
        asked = {**question, "params": [self._at(one, head) for one in question.get("params", [])]}
        answer = self._real(asked["method"], asked["params"])
        if "result" in answer:
            answer["result"] = self._bent(question["method"], question["params"], answer["result"], head)
        return {**answer, "id": question.get("id")}

    def _at(self, given: Any, head: int) -> Any:
        """The newest block is the newest that it knows."""
        if self.behind and given in _LATEST:
            return hex(head)
        return given

    def _bent(self, method: str, params: list[Any], result: Any, head: int) -> Any:
        if method == "eth_blockNumber":
            return hex(head)
        if method == "eth_chainId" and self.lies == OTHER_CHAIN:
            return hex(424242)
        if method == "eth_getTransactionReceipt" and self.lies in (NULL_RECEIPTS, FORGETFUL, OTHER_FORK):
            return None
        if method == "eth_getLogs" and self.lies in (FORGETFUL, OTHER_FORK):
            return []
        if method == "eth_call" and self.lies in (FORGETFUL, OTHER_FORK):
            return "0x" + "0" * 64
        if method == "eth_getBlockByNumber" and self.lies == OTHER_FORK and result is not None:
            return {**result, "hash": "0x" + "f0" * 32}
        return self._unless_newer(result, head)

    def _unless_newer(self, result: Any, head: int) -> Any:
        """What lies in blocks that it has not seen is not known to it."""
        if not self.behind:
            return result
        if isinstance(result, list):
            return [one for one in result if self._unless_newer(one, head) is not None]
        if isinstance(result, dict):
            height = result.get("blockNumber") or result.get("number")
            if isinstance(height, str) and int(height, 16) > head:
                return None
        return result

    def _real(self, method: str, params: list[Any]) -> dict[str, Any]:
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = self._http.post("/", json=question).json()
        return answer

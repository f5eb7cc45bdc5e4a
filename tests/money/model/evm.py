"""An EVM chain in memory with a node and a facilitator that lie, spoken to as real ones are: JSON over HTTP.

`Chain` is the truth. `behind` and `lies` bend what the node says of it, `manner` what the facilitator does.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from sandboxer.payments.x402.evm_watcher import UNFOUND_LOOKS

NETWORK, CHAIN_ID = "eip155:31337", 31337
ASSET = "0x" + "a5" * 20
PAY_TO = "0x" + "5e" * 20
_NODE, _FACILITATOR = "/node", "/facilitator"
_USED = "0x" + keccak(text="AuthorizationUsed(address,bytes32)").hex()
_TRANSFER = "0x" + keccak(text="Transfer(address,address,uint256)").hex()
_DECIMALS = "0x313ce567"
_NAME = "0x06fdde03"
_STATE = "0xe94a0102"
FORGETFUL, OTHER_FORK, NULL_RECEIPTS, DOWN = "forgetful", "other fork", "null receipts", "down"
LIES = (FORGETFUL, OTHER_FORK, NULL_RECEIPTS, DOWN)
# For so many blocks a node must deny what was final before it is believed.
MISSING = 6
# Silent: it sends, and cuts the line instead of answering.
HONEST, SILENT, SAYS_NO, SAYS_YES = "honest", "silent", "says no, and sends", "says yes, and does not send"
# What a node has that is not what the settings name.
PRETENCES = ("another chain id", "another number of decimals", "another name")
MANNERS = (HONEST, SILENT, SAYS_NO, SAYS_YES)


def _topic(address: str) -> str:
    return "0x" + address.lower().removeprefix("0x").rjust(64, "0")


@dataclass
class Sent:
    """A transfer by authorization that somebody sent to the chain."""

    payer: str
    nonce: str
    amount: int
    # By the clock of the block that would have it: from then on no block can.
    valid_before: int = 0
    id: str = field(default_factory=lambda: "0x" + secrets.token_hex(32))
    height: int | None = None
    # How often a reorganisation threw it out.
    thrown_out: int = 0


@dataclass
class Block:
    number: int
    at: datetime
    id: str = field(default_factory=lambda: "0x" + secrets.token_hex(32))


@dataclass(frozen=True)
class Denial:
    """The node said from this head that something is not there, though it is."""

    head: int
    # And that the block which has it is not its chain's.
    of_branch: bool


class Chain:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.blocks = [Block(number, now()) for number in range(20)]
        self.sent: dict[str, Sent] = {}
        # Thrown out by a reorganisation, or too late, and nobody has sent it again.
        self.forgotten: dict[str, Sent] = {}
        self.behind = 0
        self.lies = ""
        self.manner = HONEST
        # One of PRETENCES, or "".
        self.pretends = ""
        # By nonce, in the order in which they were said.
        self.denials: dict[str, list[Denial]] = {}
        # How often the receipt of one that is there was not shown.
        self.withheld: Counter[str] = Counter()
        self._showed_branch = False

    # -- the truth -----------------------------------------------------------------------------------------

    def send(self, payload: dict[str, Any]) -> Sent:
        """The nonce counts once, whoever carries it."""
        given = payload["payload"]["authorization"]
        nonce = str(given["nonce"]).lower()
        if nonce not in self.sent:
            until = int(given["validBefore"])
            self.sent[nonce] = Sent(str(given["from"]).lower(), nonce, int(given["value"]), until)
        return self.sent[nonce]

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            block = Block(len(self.blocks), self._now())
            self.blocks.append(block)
            for nonce, one in list(self.sent.items()):
                if one.height is None and block.at.timestamp() < one.valid_before:
                    one.height = block.number
                elif one.height is None:
                    # Its time is over: the token refuses it, and the node has nothing that waits any more.
                    self.forgotten[nonce] = self.sent.pop(nonce)

    def reorganise(self, depth: int) -> None:
        """The last blocks lose; what was in them is forgotten until somebody sends it again."""
        first = max(1, len(self.blocks) - depth)
        lost = {n: one for n, one in self.sent.items() if one.height is not None and one.height >= first}
        del self.blocks[first:]
        for nonce, one in lost.items():
            one.thrown_out += 1
            one.height = None
            # Waits again at the same node, or is gone.
            if one.thrown_out % 2:
                self.forgotten[nonce] = self.sent.pop(nonce)
        for _ in range(depth + 1):
            self.blocks.append(Block(len(self.blocks), self._now()))

    def is_there(self, nonce: str) -> bool:
        found = self.sent.get(nonce)
        return found is not None and found.height is not None

    def was_thrown_out(self, nonce: str) -> bool:
        found = self.sent.get(nonce) or self.forgotten.get(nonce)
        return nonce in self.forgotten or (found is not None and found.thrown_out > 0)

    def was_denied(self, nonce: str, *, since: int = 0, of_branch: bool = False) -> bool:
        """Whether the only node that there is said so for as many blocks as it takes to be believed."""
        heads = [one.head for one in self.denials.get(nonce, ())[since:] if one.of_branch or not of_branch]
        return bool(heads) and max(heads) - min(heads) >= MISSING

    def may_be_given_up(self, nonce: str) -> bool:
        """Whether the only node hid it for so long that nobody is to blame: it denied it for many blocks, or
        showed for a day and many looks that the nonce is spent, and never by what."""
        return self.was_denied(nonce) or self.withheld[nonce] >= UNFOUND_LOOKS // 3

    # -- what is said of it --------------------------------------------------------------------------------

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """None: whoever asks finds the line cut."""
        if path.startswith(_FACILITATOR):
            return self._facilitate(path.removeprefix(_FACILITATOR).strip("/"), body)
        if self.lies == DOWN:
            return None
        return {"jsonrpc": "2.0", "id": body["id"], "result": self._say(body["method"], body["params"])}

    def _facilitate(self, word: str, body: dict[str, Any]) -> dict[str, Any] | None:
        payload = body["paymentPayload"]
        given = payload["payload"]["authorization"]
        if word == "verify":
            if str(given["nonce"]).lower() in self.sent:
                return {"isValid": False, "invalidReason": "nonce_already_used"}
            return {"isValid": True, "payer": given["from"]}
        one = Sent("", "", 0) if self.manner == SAYS_YES else self.send(payload)
        if self.manner == SILENT:
            return None
        if self.manner == SAYS_NO:
            said = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
        else:
            said = {"success": True, "transaction": one.id, "payer": given["from"]}
        return {**said, "network": NETWORK}

    def _say(self, method: str, params: list[Any]) -> Any:
        head = len(self.blocks) - 1 - self.behind
        if method == "eth_chainId":
            return hex(CHAIN_ID + (self.pretends == PRETENCES[0]))
        if method == "eth_blockNumber":
            return hex(head)
        if method == "eth_getBlockByNumber":
            return self._block(int(params[0], 16), head)
        if method == "eth_getTransactionReceipt":
            receipt = self._receipt(one := self._by_id(params[0]), head)
            if one is not None and receipt is not None and self.lies:
                self.withheld[one.nonce] += 1
            return None if self.lies else receipt
        if method == "eth_getTransactionByHash":
            one = self._by_id(params[0])
            return None if one is None or self.lies else {"hash": one.id, "blockHash": self._hash(one, head)}
        if method == "eth_call":
            # Of the block that is named: whoever asks says which head he has seen.
            named = head if params[1] == "latest" else min(head, int(params[1], 16))
            return self._call(params[0]["data"], named)
        if method == "eth_getLogs":
            return self._logs(params[0], head)
        return None

    def _block(self, number: int, head: int) -> dict[str, Any] | None:
        if number > head:
            return None
        block = self.blocks[number]
        self._showed_branch = self.lies == OTHER_FORK
        id = "0x" + "f0" * 32 if self.lies == OTHER_FORK else block.id
        return {"number": hex(number), "hash": id, "timestamp": hex(int(block.at.timestamp()))}

    def _by_id(self, id: str) -> Sent | None:
        return next((one for one in self.sent.values() if one.id == id), None)

    def _hash(self, one: Sent, head: int) -> str | None:
        return None if one.height is None or one.height > head else self.blocks[one.height].id

    def _receipt(self, one: Sent | None, head: int) -> dict[str, Any] | None:
        if one is None or (block := self._hash(one, head)) is None:
            return None
        paid = [_TRANSFER, _topic(one.payer), _topic(PAY_TO)]
        logs = [
            {"address": ASSET, "topics": [_USED, _topic(one.payer), one.nonce], "data": "0x"},
            {"address": ASSET, "topics": paid, "data": hex(one.amount)},
        ]
        return {
            "status": "0x1",
            "blockHash": block,
            "blockNumber": hex(one.height or 0),
            "transactionHash": one.id,
            "from": "0x" + "ca" * 20,
            "logs": logs,
        }

    def _call(self, data: str, head: int) -> str:
        if data.startswith(_DECIMALS):
            return "0x" + ("8" if self.pretends == PRETENCES[1] else "6").rjust(64, "0")
        if data.startswith(_NAME) and self.pretends == PRETENCES[2]:
            return "0x" + encode(["string"], ["Another Dollar"]).hex()
        if not data.startswith(_STATE):
            return "0x"
        one = self.sent.get("0x" + data[-64:])
        is_spent = one is not None and self._hash(one, head) is not None
        if one is not None and is_spent and self.lies in (FORGETFUL, OTHER_FORK):
            denial = Denial(head, self._showed_branch or self.lies == OTHER_FORK)
            self.denials.setdefault(one.nonce, []).append(denial)
            is_spent = False
        return "0x" + ("1" if is_spent else "0").rjust(64, "0")

    def _logs(self, wanted: dict[str, Any], head: int) -> list[dict[str, Any]]:
        if self.lies in (FORGETFUL, OTHER_FORK) or len(wanted["topics"]) < 3:
            return []
        one = self.sent.get(wanted["topics"][2])
        is_seen = one is not None and self._hash(one, head) is not None
        return [{"transactionHash": one.id, "topics": [], "data": "0x"}] if one and is_seen else []


def settings(url: str) -> dict[str, Any]:
    """Of a platform that takes payments on the chain that is served there."""
    network = {
        "network": NETWORK,
        "pay_to": PAY_TO,
        "rpc_url": url + _NODE,
        "facilitator": url + _FACILITATOR,
        "confirmations": 2,
        "missing_blocks": MISSING,
        "assets": [{"code": "USDC", "id": ASSET, "name": "Test Dollar", "version": "2"}],
    }
    return {"x402": {"networks": [network], "minimum_sats": 1, "settle_timeout": "5s"}}

"""A Stacks node's API, as far as payments need it: nonces of an address, and which transaction spent one."""

from __future__ import annotations

from typing import Any, Literal, overload

import httpx

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.kernel.values import value_class
from sandboxer.payments.stacks.relay import Unreadable, read_txid
from sandboxer.payments.stacks.transactions import sha512_256

ASK_SECONDS = 10.0
# A block's transaction may have two megabytes, twice that in hex.
MAX_ANSWER = 8 * 1024 * 1024
# How many of an address's newest transactions are looked through for a nonce.
PAGE = 50
PAGES = 4


@value_class
class Seen:
    """A transaction as the chain shows it; without a height it waits for a block."""

    txid: str
    sender: str
    nonce: int
    status: str
    height: int | None
    block: str | None
    # When its block was made, in seconds; None: the API does not say.
    at: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "success" and self.height is not None

    @property
    def aborted(self) -> bool:
        return self.status.startswith("abort_")


class StacksNode:
    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._url = url.rstrip("/")
        self._http = http

    async def tip(self) -> int:
        return _whole(await self._ask("/v2/info"), "stacks_tip_height")

    async def network_id(self) -> int:
        return _whole(await self._ask("/v2/info"), "network_id")

    async def block_at(self, height: int) -> str | None:
        """The hash of the chain's own block there; None: it has none, or not yet."""
        answer = await self._ask(f"/extended/v2/blocks/{height}", may_miss=True)
        if answer is None or answer.get("canonical") is not True:
            return None
        if answer.get("height") != height or not isinstance(answer.get("hash"), str):
            raise _nonsense("another block than was asked for")
        return str(answer["hash"])

    async def nonce(self, address: str) -> int:
        """The first one that no block has spent."""
        return _whole(await self._ask(f"/v2/accounts/{address}?proof=0"), "nonce")

    async def balance(self, address: str, asset: str | None) -> int:
        """Of a token (`address.contract::token`), or of STX."""
        answer = await self._ask(f"/extended/v1/address/{address}/balances")
        group = answer.get("stx") if asset is None else (answer.get("fungible_tokens") or {}).get(asset, {})
        balance = group.get("balance", "0") if isinstance(group, dict) else None
        if not isinstance(balance, str) or not (balance.isascii() and balance.isdigit()):
            raise _nonsense("a balance that is no number")
        return int(balance)

    async def mined(self, address: str, nonce: int) -> Seen | None:
        """Return the mined transaction that spent a nonce, searching some pages, newest first."""
        for page in range(PAGES):
            path = f"/extended/v1/address/{address}/transactions?limit={PAGE}&offset={page * PAGE}"
            found = _listed(await self._ask(path))
            for seen in found:
                if (seen.sender, seen.nonce) == (address, nonce):
                    return seen
            if len(found) < PAGE:
                return None
        return None

    async def waiting(self, address: str, nonce: int) -> Seen | None:
        found = _listed(await self._ask(f"/extended/v1/address/{address}/mempool?limit={PAGE}"))
        return next((seen for seen in found if (seen.sender, seen.nonce) == (address, nonce)), None)

    async def raw(self, txid: str) -> bytes:
        """Its bytes as the chain has them, with the sponsor's signature; they hash to its id."""
        answer = (await self._ask(f"/extended/v1/tx/{txid}/raw")).get("raw_tx")
        try:
            raw = bytes.fromhex(answer.removeprefix("0x") if isinstance(answer, str) else "?")
        except ValueError:
            raise _nonsense("a transaction that is not hex") from None
        if sha512_256(raw).hex() != txid:
            raise _nonsense("a transaction with another id than was asked for")
        return raw

    @overload
    async def _ask(self, path: str) -> dict[str, Any]: ...

    @overload
    async def _ask(self, path: str, *, may_miss: Literal[True]) -> dict[str, Any] | None: ...

    async def _ask(self, path: str, *, may_miss: bool = False) -> dict[str, Any] | None:
        """`may_miss`: None where there is none."""
        try:
            answer = await self._http.get(self._url + path, timeout=ASK_SECONDS)
        except httpx.RequestError as gone:
            raise ChainUnavailable(chain="stacks", why=f"{type(gone).__name__} on {path}") from gone
        if may_miss and answer.status_code == 404:
            return None
        if answer.status_code != 200 or len(answer.content) > MAX_ANSWER:
            raise ChainUnavailable(chain="stacks", why=f"{answer.status_code} on {path}")
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise _nonsense(f"no object on {path}")
        return body


def _listed(body: dict[str, Any]) -> list[Seen]:
    results = body.get("results")
    if not isinstance(results, list):
        raise _nonsense("no list of transactions")
    return [_seen(entry) for entry in results if isinstance(entry, dict) and entry.get("canonical", True)]


def _seen(entry: dict[str, Any]) -> Seen:
    height, block = entry.get("block_height"), entry.get("block_hash")
    try:
        txid = read_txid(entry.get("tx_id"))
    except Unreadable:
        raise _nonsense("a transaction without id") from None
    return Seen(
        txid=txid,
        sender=str(entry.get("sender_address")),
        nonce=_whole(entry, "nonce"),
        status=str(entry.get("tx_status")),
        height=height if isinstance(height, int) and height > 0 else None,
        block=str(block) if block else None,
        at=_moment(entry),
    )


def _moment(entry: dict[str, Any]) -> int | None:
    """Of its block, or of the Bitcoin block beneath."""
    for name in ("block_time", "burn_block_time"):
        value = entry.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _nonsense(f"{name} is not a number")
    return value


def _nonsense(why: str) -> ChainUnavailable:
    return ChainUnavailable(chain="stacks", why=f"its API answered {why}")


def next_nonce(url: str, address: str) -> int:
    """For a payer: the next nonce with the mempool counted in. Blocking, as x402's client schemes are."""
    try:
        with httpx.Client(trust_env=False, timeout=ASK_SECONDS) as http:
            answer = http.get(f"{url.rstrip('/')}/extended/v1/address/{address}/nonces")
            body = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as gone:
        raise ChainUnavailable(chain="stacks", why=f"{type(gone).__name__}: nonce not known") from gone
    return _whole(body if isinstance(body, dict) else {}, "possible_next_nonce")

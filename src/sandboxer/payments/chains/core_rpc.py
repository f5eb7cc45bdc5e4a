"""Watches addresses through Core-style nodes (Bitcoin, Litecoin, Dogecoin).

Every address that is handed out is imported into a wallet of the node that holds no keys, labelled with
itself; so one `listtransactions` per address shows everything, spent or not, in the old dialect and the new.
The answer is checked against the node's own chain: the block is known, on the best branch, and no deeper than
the tip allows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from sandboxer.kernel.errors import AddressUsed, Conflict
from sandboxer.payments.chains.addresses import Network
from sandboxer.payments.chains.bitcoin import MAX_INDEX, AccountKey, txid_of
from sandboxer.payments.chains.contract import Deposit, why_another, why_behind, why_slow, why_stale
from sandboxer.payments.chains.core_wallet import DIALECTS, LOOK_BACK_S, Dialect, WatchWallet
from sandboxer.payments.chains.transport import NodeChain, NodeError, own_keys

# Codes of Bitcoin Core's rpc/protocol.h.
_NOT_IN_MEMPOOL = -5
_NO_SUCH_BLOCK = frozenset({-5, -8})
_ALREADY_MINED = -27
_REFUSED = frozenset({-22, -25, -26})
_FEE_BLOCKS = 6
_ANY_DEPTH = 9_999_999
# Unspent outputs are listed without their block, and nobody asks.
_NO_BLOCK = "0" * 64
_LISTED = 1000
_BATCH = 50


class CoreRpc(NodeChain):
    """`Chain` over a node's JSON-RPC. `wallet`: the watch-only wallet, made on first use; None: the node has
    one unnamed wallet (Dogecoin). `birthday` and `look_back_s`: see `core_wallet`."""

    def __init__(
        self,
        network: Network,
        url: str,
        *,
        user: str,
        password: str,
        keys: AccountKey | None = None,
        wallet: str | None = "sandboxer-watch",
        dialect: Dialect | None = None,
        timeout: httpx.Timeout | None = None,
        birthday: int | None = None,
        look_back_s: int = LOOK_BACK_S,
    ) -> None:
        super().__init__(network, url, keys, timeout, httpx.BasicAuth(user, password))
        self._dialect = dialect or DIALECTS[network.coin]
        self._wallet = WatchWallet(
            self._wire,
            self._dialect,
            wallet if self._dialect.named_wallets else None,
            keys,
            birthday=birthday,
            look_back_s=look_back_s,
        )
        self._node = self._wallet.node

    # -- Chain ---------------------------------------------------------------------------------------------

    async def tip(self) -> int:
        return self._read.integer(await self._ask("getblockcount"), "the height")

    async def fresh_address(self, index: int) -> str:
        address = own_keys(self._keys, self._wire).address(index)
        await self._wallet.know_fresh(index)
        if await self._listed([address]):
            raise AddressUsed(chain=self.code, index=index)
        return address

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        wanted = self._checked_once(addresses)
        found: list[Deposit] = []
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            # Each time: a wallet that was lost or replaced must not look like one that received nothing.
            await self._wallet.know_handed_out(batch)
            found += await self._listed(batch)
        return await self._checked(await self._without_ghosts(found))

    # -- Checkable -----------------------------------------------------------------------------------------

    async def why_wrong(self) -> str | None:
        genesis = self._read.hash(await self._ask("getblockhash", 0), "the first block")
        if (why := why_another(self.network, genesis)) is not None:
            return why
        about = self._read.object(await self._ask("getblockchaininfo"))
        blocks = self._read.integer(about.get("blocks"), "blocks")
        headers = self._read.integer(about.get("headers"), "headers")
        # Dogecoin Core does not say whether it reads; then the age of its newest block does.
        is_reading = about.get("initialblockdownload") is True
        if why := why_behind(self.network, blocks=blocks, headers=headers, is_reading=is_reading):
            return why
        best = self._read.hash(about.get("bestblockhash"), "the best block")
        header = self._read.object(await self._ask("getblockheader", best))
        return why_stale(
            self.network, tip_time=self._read.integer(header.get("time"), "time"), now=time.time()
        )

    async def why_unready(self) -> str | None:
        if (why := await self._wallet.why_unready()) is not None or self._keys is None:
            return why
        return await why_slow(self._listed([self._keys.address(MAX_INDEX)]))

    # -- Funds ---------------------------------------------------------------------------------------------

    async def unspent(self, addresses: Sequence[str]) -> list[Deposit]:
        if not (wanted := list(dict.fromkeys(addresses))):
            return []
        await self._wallet.know_coins(wanted)
        rows = await self._wallet.ask("listunspent", 0, _ANY_DEPTH, wanted)
        return [
            self._deposit({**row, "blockhash": _NO_BLOCK}, self._read.text(row.get("address"), "address"))
            for row in self._read.objects(rows)
            if row.get("address") in wanted
        ]

    async def broadcast(self, raw: bytes) -> str:
        try:
            answer = await self._node.call("sendrawtransaction", (raw.hex(),))
        except NodeError as error:
            if error.code == _ALREADY_MINED:
                return txid_of(raw)
            if error.code in _REFUSED:
                raise Conflict(why=f"the {self.code} node refuses the transaction: {error}") from None
            raise self._wire.trouble(str(error)) from None
        return self._read.hash(answer, "txid")

    async def depth(self, txid: str) -> int | None:
        (answer,) = await self._wallet.answers([("gettransaction", (txid, True))])
        if isinstance(answer, NodeError):
            if answer.code == _NOT_IN_MEMPOOL:
                return None
            raise self._wire.trouble(str(answer))
        claimed = self._read.object(answer).get("confirmations")
        if (depth := self._read.integer(claimed, "confirmations", least=-(2**31))) > 0:
            return depth
        # A wallet remembers what nobody else does any more.
        return None if depth < 0 or await self._not_in_mempool([txid]) else 0

    async def fee_rate(self) -> int | None:
        answer = await self._ask(self._dialect.fee_estimate, _FEE_BLOCKS)
        rate = answer.get("feerate") if isinstance(answer, dict) else answer
        # Both dialects say so when they have seen too little: no such field, or -1.
        return None if rate is None or rate <= 0 else self._read.amount(rate, "fee rate")

    # -- what was received ---------------------------------------------------------------------------------

    async def _listed(self, addresses: Sequence[str]) -> list[Deposit]:
        calls = [("listtransactions", (address, _LISTED, 0, True)) for address in addresses]
        found = []
        for address, entries in zip(addresses, await self._wallet.ask_all(calls), strict=True):
            rows = self._read.objects(entries)
            if len(rows) >= _LISTED:
                raise self._wire.trouble(f"{address} has {_LISTED} payments or more; one invoice has a few")
            # "send" and its kin: the operator moved a deposit on, which does not undo that it came.
            found += [self._deposit(row, address) for row in rows if row.get("category") == "receive"]
        return found

    def _deposit(self, row: dict[str, Any], address: str) -> Deposit:
        if row.get("address") != address:
            raise self._read.nonsense(f"a payment to {str(row.get('address'))[:60]}, which was not asked for")
        claimed = row.get("confirmations")
        depth = self._read.integer(claimed, "confirmations", least=-(2**31))
        return Deposit(
            chain=self.code,
            txid=self._read.hash(row.get("txid"), "txid"),
            output=str(self._read.integer(row.get("vout"), "vout")),
            address=address,
            amount=self._read.amount(row.get("amount"), "amount"),
            confirmations=max(depth, 0),
            block=self._read.hash(row.get("blockhash"), "blockhash") if depth > 0 else None,
            conflicted=depth < 0 or row.get("abandoned") is True,
        )

    async def _without_ghosts(self, deposits: list[Deposit]) -> list[Deposit]:
        """Mark deposits that wait for a block but are in no mempool: they were replaced or dropped.

        A block may have come between the two questions, so the wallet is asked once more first.
        """
        waiting = [each for each in deposits if each.confirmations == 0 and not each.conflicted]
        if not (gone := await self._not_in_mempool([each.txid for each in waiting])):
            return deposits
        doubted = list(dict.fromkeys(each.address for each in waiting if each.txid in gone))
        again = [
            replace(each, conflicted=True) if each.txid in gone and not each.confirmations else each
            for each in await self._listed(doubted)
        ]
        return [each for each in deposits if each.address not in doubted] + again

    async def _checked(self, deposits: Sequence[Deposit]) -> list[Deposit]:
        heights = await self._heights([each.block for each in deposits if each.block])
        tip = await self.tip() if heights else 0
        checked = []
        for each in deposits:
            if each.block:
                height = heights[each.block]
                # Blocks may come between our questions, never go: a claim above this is a lie.
                if each.confirmations > tip - height + 1:
                    raise self._read.nonsense(
                        f"{each.confirmations} confirmations at height {height} of {tip}"
                    )
                each = replace(each, height=height)
            checked.append(each)
        return checked

    async def _not_in_mempool(self, txids: Sequence[str]) -> set[str]:
        """Return those that are not in the mempool; a wallet also remembers what can no longer be mined."""
        unique = list(dict.fromkeys(txids))
        answers = await self._node.batch([("getmempoolentry", (txid,)) for txid in unique])
        gone = set()
        for txid, answer in zip(unique, answers, strict=True):
            if isinstance(answer, NodeError):
                if answer.code != _NOT_IN_MEMPOOL:
                    raise self._wire.trouble(str(answer))
                gone.add(txid)
        return gone

    async def _heights(self, blocks: Sequence[str]) -> dict[str, int]:
        """Return the heights of blocks, each checked twice: by its header and by the best chain."""
        unique = list(dict.fromkeys(blocks))
        headers = await self._node.batch([("getblockheader", (block,)) for block in unique])
        heights = {}
        for block, header in zip(unique, headers, strict=True):
            if isinstance(header, NodeError):
                if header.code in _NO_SUCH_BLOCK:
                    raise self._read.nonsense(f"a block it does not have: {block}")
                raise self._wire.trouble(str(header))
            heights[block] = self._read.integer(self._read.object(header).get("height"), "height")
        there = await self._node.batch([("getblockhash", (heights[each],)) for each in unique])
        for each in there:
            if isinstance(each, NodeError):
                raise self._wire.trouble(str(each))
        if there != unique:
            raise self._wire.trouble("the chain is being reorganised; a block left it while we looked")
        return heights

    async def _ask(self, method: str, *params: Any) -> Any:
        try:
            return await self._node.call(method, params)
        except NodeError as error:
            raise self._wire.trouble(str(error)) from None

"""A chain of the Bitcoin family through an Esplora server (Blockstream's REST, also spoken by mempool.space
and electrs, of which there are kinds for Litecoin and Dogecoin): needs no wallet in the node, and tells the
whole past of any address."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx

from sandboxer.kernel.errors import AddressUsed, Conflict
from sandboxer.payments.chains.addresses import Network, script_of
from sandboxer.payments.chains.bitcoin import MAX_INDEX, AccountKey
from sandboxer.payments.chains.contract import Deposit, why_another, why_slow, why_stale
from sandboxer.payments.chains.transport import NodeChain, own_keys

# Esplora shows confirmed transactions 25 at a time; an address of one invoice has a few.
_PAGE = 25
_MOST_PAGES = 40


class Esplora(NodeChain):
    """`Chain` over Esplora. `url` ends before `/blocks/...` (public ones end in `/api`)."""

    def __init__(
        self,
        network: Network,
        url: str,
        *,
        keys: AccountKey | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> None:
        super().__init__(network, url, keys, timeout)

    # -- Chain ---------------------------------------------------------------------------------------------

    async def tip(self) -> int:
        return self._read.integer(await self._get("/blocks/tip/height"), "the height")

    async def fresh_address(self, index: int) -> str:
        address = own_keys(self._keys, self._wire).address(index)
        about = self._read.object(await self._get(f"/address/{address}"))
        seen = [
            self._read.integer(self._read.object(about.get(part)).get("tx_count"), "tx_count")
            for part in ("chain_stats", "mempool_stats")
        ]
        if any(seen):
            raise AddressUsed(chain=self.code, index=index)
        return address

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        found = [each for address in self._checked_once(addresses) for each in await self._received(address)]
        return await self._checked(found)

    # -- Checkable -----------------------------------------------------------------------------------------

    async def why_wrong(self) -> str | None:
        genesis = self._read.hash(await self._get("/block-height/0"), "the first block")
        if (why := why_another(self.network, genesis)) is not None:
            return why
        best = self._read.hash(await self._get("/blocks/tip/hash"), "the best block")
        tip = self._read.object(await self._get(f"/block/{best}"))
        moment = self._read.integer(tip.get("timestamp"), "timestamp")
        return why_stale(self.network, tip_time=moment, now=time.time())

    async def why_unready(self) -> str | None:
        """The index of addresses is what we need of it."""
        if self._keys is None:
            return None
        return await why_slow(self._received(self._keys.address(MAX_INDEX)))

    # -- Funds ---------------------------------------------------------------------------------------------

    async def unspent(self, addresses: Sequence[str]) -> list[Deposit]:
        found = []
        for address in self._checked_once(addresses):
            for row in self._read.objects(await self._get(f"/address/{address}/utxo")):
                mined = self._is_confirmed(row)
                found.append(
                    Deposit(
                        chain=self.code,
                        txid=self._read.hash(row.get("txid"), "txid"),
                        output=str(self._read.integer(row.get("vout"), "vout")),
                        address=address,
                        amount=self._read.integer(row.get("value"), "value"),
                        confirmations=1 if mined else 0,
                    )
                )
        return found

    async def broadcast(self, raw: bytes) -> str:
        answer = await self._wire.post("/tx", raw.hex())
        if answer.status_code == 400:
            raise Conflict(why=f"the {self.code} network refuses the transaction: {answer.text[:200]}")
        self._check_ok(answer)
        return self._read.hash(answer.text.strip(), "txid")

    async def depth(self, txid: str) -> int | None:
        answer = await self._wire.get(f"/tx/{txid}")
        if answer.status_code == 404:
            return None
        self._check_ok(answer)
        tx = self._read.object(self._wire.json(answer))
        if not self._is_confirmed(tx):
            return 0
        height = self._read.integer(self._read.object(tx.get("status")).get("block_height"), "block_height")
        return max(0, await self.tip() - height + 1)

    async def fee_rate(self) -> int | None:
        rates = self._read.object(await self._get("/fee-estimates"))
        if (rate := rates.get("6")) is None:
            return None
        if not isinstance(rate, Decimal | int) or rate <= 0:
            raise self._read.nonsense("a fee rate that is none")
        return int(rate * 1000)

    # -- reading -------------------------------------------------------------------------------------------

    async def _received(self, address: str) -> list[Deposit]:
        txs = self._read.objects(await self._get(f"/address/{address}/txs"))
        page = [tx for tx in txs if self._is_confirmed(tx)]
        for _ in range(_MOST_PAGES):
            if len(page) < _PAGE:
                break
            last = self._read.hash(page[-1].get("txid"), "txid")
            page = self._read.objects(await self._get(f"/address/{address}/txs/chain/{last}"))
            txs += page
        else:
            raise self._wire.trouble(f"{address} has {_PAGE * _MOST_PAGES} payments or more")
        script = script_of(address, self.network)
        return [deposit for tx in txs for deposit in self._outputs(tx, address, script)]

    def _is_confirmed(self, tx: dict[str, Any]) -> bool:
        return self._read.object(tx.get("status")).get("confirmed") is True

    def _outputs(self, tx: dict[str, Any], address: str, script: bytes) -> list[Deposit]:
        """By script, not by the address the server writes: the script is what the chain knows."""
        status = self._read.object(tx.get("status"))
        mined = self._is_confirmed(tx)
        return [
            Deposit(
                chain=self.code,
                txid=self._read.hash(tx.get("txid"), "txid"),
                output=str(place),
                address=address,
                amount=self._read.integer(out.get("value"), "value"),
                confirmations=1 if mined else 0,
                block=self._read.hash(status.get("block_hash"), "block_hash") if mined else None,
                height=self._read.integer(status.get("block_height"), "block_height") if mined else None,
            )
            for place, out in enumerate(self._read.objects(tx.get("vout")))
            if out.get("scriptpubkey") == script.hex()
        ]

    async def _checked(self, deposits: Sequence[Deposit]) -> list[Deposit]:
        """Confirmations are counted here, from heights whose blocks are asked for apart."""
        places = {(each.height, each.block) for each in deposits if each.height is not None}
        if not places:
            return list(deposits)
        for height, block in places:
            if await self._get(f"/block-height/{height}") != block:
                raise self._wire.trouble(f"the block of a payment is not the one at height {height}")
        tip = await self.tip()
        return [self._counted(each, tip) for each in deposits]

    def _counted(self, each: Deposit, tip: int) -> Deposit:
        if each.height is None:
            return each
        if each.height > tip:
            raise self._read.nonsense(f"a payment at height {each.height} of {tip}")
        return replace(each, confirmations=tip - each.height + 1)

    async def _get(self, path: str) -> Any:
        answer = await self._wire.get(path)
        self._check_ok(answer)
        text = answer.text.strip()
        # Hashes come bare, all else as JSON (a height is both).
        return text if len(text) == 64 and not text.startswith("{") else self._wire.json(answer)

    def _check_ok(self, answer: httpx.Response) -> None:
        if answer.status_code != 200:
            raise self._wire.trouble(f"HTTP {answer.status_code}")

"""What differs between Core-style nodes: how an address comes under watch, with its past or without.

Bitcoin Core has descriptor wallets only; Litecoin Core's 0.21 (Debian's build) legacy wallets only; Dogecoin
Core 1.14 speaks the language of Bitcoin Core 0.14: one unnamed wallet, no named arguments, no output scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sandboxer.payments.chains.transport import JsonRpc, NodeError, Reader

# As a moment, all three take it for "from the first block on".
WHOLE_CHAIN = 0


class Import(StrEnum):
    DESCRIPTORS = "descriptors"
    MULTI = "multi"


@dataclass(frozen=True)
class Dialect:
    coin: str
    imports: Import
    address_info: str = "getaddressinfo"
    fee_estimate: str = "estimatesmartfee"
    named_wallets: bool = True
    # Can the node look an address up among all unspent outputs? If not, only a rescan tells its past.
    scans: bool = True

    async def watch(
        self, node: JsonRpc, wallet: JsonRpc, addresses: Sequence[str], *, since: int | None
    ) -> None:
        """Have the wallet know these addresses, and read the chain from `since` on (unix seconds).

        None: they were never handed out, so nothing is read. (Bitcoin Core reads the last two hours all the
        same, a dozen blocks: one more reason to import many at a time.) Raises NodeError.
        """
        if self.imports is Import.DESCRIPTORS:
            requests = await self._descriptors(node, addresses, since)
            outcomes = await wallet.call("importdescriptors", (requests,))
        else:
            multi = [
                {
                    "scriptPubKey": {"address": address},
                    "timestamp": "now" if since is None else since,
                    "label": address,
                    "watchonly": True,
                }
                for address in addresses
            ]
            outcomes = await wallet.call("importmulti", (multi, {"rescan": since is not None}))
        read = Reader(self.coin)
        for outcome in read.objects(outcomes):
            if outcome.get("success") is not True:
                error = read.object(outcome.get("error", {}))
                raise NodeError(error.get("code", 0), str(error.get("message", "import failed")))

    def why_another_wallet(self, about: Mapping[str, Any]) -> str | None:
        """Why addresses cannot be imported into this wallet, by what it tells of itself."""
        name, has_descriptors = about.get("walletname"), about.get("descriptors")
        if self.imports is Import.MULTI:
            return f"its wallet {name!r} has descriptors, a legacy one is needed" if has_descriptors else None
        if has_descriptors is False:
            return f"its wallet {name!r} has no descriptors"
        if about.get("private_keys_enabled"):
            return f"its wallet {name!r} holds keys, one that only watches is needed; choose another name"
        return None

    async def watch_coins(self, node: JsonRpc, wallet: JsonRpc, addresses: Sequence[str]) -> None:
        """The same with every coin that lies there, however old. Takes long: for those who spend, never for
        an order. Raises NodeError."""
        if not self.scans:
            await self.watch(node, wallet, addresses, since=WHOLE_CHAIN)
            return
        await self.watch(node, wallet, addresses, since=None)
        read = Reader(self.coin)
        found = await node.call("scantxoutset", ("start", [f"addr({each})" for each in addresses]))
        outputs: list[dict[str, Any]] = read.objects(read.object(found).get("unspents"))
        if outputs:
            first = min(read.integer(each.get("height"), "height") for each in outputs)
            await wallet.call("rescanblockchain", (first,))

    async def _descriptors(
        self, node: JsonRpc, addresses: Sequence[str], since: int | None
    ) -> list[dict[str, Any]]:
        read = Reader(self.coin)
        infos = await node.batch([("getdescriptorinfo", (f"addr({each})",)) for each in addresses])
        requests: list[dict[str, Any]] = []
        for address, info in zip(addresses, infos, strict=True):
            if isinstance(info, NodeError):
                raise info
            descriptor = read.text(read.object(info).get("descriptor"), "descriptor")
            timestamp = "now" if since is None else since
            requests.append({"desc": descriptor, "timestamp": timestamp, "label": address})
        return requests


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "BTC": Dialect("BTC", Import.DESCRIPTORS),
        "LTC": Dialect("LTC", Import.MULTI),
        "DOGE": Dialect(
            "DOGE",
            Import.MULTI,
            address_info="validateaddress",
            fee_estimate="estimatefee",
            named_wallets=False,
            scans=False,
        ),
    }
)


def dialect_of(coin: str) -> Dialect:
    return DIALECTS[coin]

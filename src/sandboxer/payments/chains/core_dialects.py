"""What differs between Core-style nodes: how an address comes under watch together with its past.

Bitcoin Core has descriptor wallets only; Litecoin Core's 0.21 (Debian's build) legacy wallets only; Dogecoin
Core 1.14 speaks the language of Bitcoin Core 0.14: one unnamed wallet, no named arguments, no output scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains.transport import JsonRpc, NodeError, Reader


class Import(StrEnum):
    DESCRIPTORS = "descriptors"
    ADDRESSES = "addresses"


@dataclass(frozen=True)
class Dialect:
    coin: str
    imports: Import
    address_info: str = "getaddressinfo"
    fee_estimate: str = "estimatesmartfee"
    named_wallets: bool = True
    # Can the node look an address up among all unspent outputs? If not, only a rescan tells its past.
    scans: bool = True

    async def watch(self, node: JsonRpc, wallet: JsonRpc, addresses: Sequence[str]) -> None:
        try:
            if self.imports is Import.DESCRIPTORS:
                await self._import_descriptors(node, wallet, addresses)
            else:
                await self._import_addresses(wallet, addresses)
            if self.scans:
                await self._recover(node, wallet, addresses)
        except NodeError as error:
            raise ChainUnavailable(chain=self.coin, why=f"an address cannot be watched: {error}") from None

    async def _import_descriptors(self, node: JsonRpc, wallet: JsonRpc, addresses: Sequence[str]) -> None:
        read = Reader(self.coin)
        infos = await node.batch([("getdescriptorinfo", (f"addr({each})",)) for each in addresses])
        requests = []
        for address, info in zip(addresses, infos, strict=True):
            if isinstance(info, NodeError):
                raise info
            descriptor = Reader(self.coin).text(
                Reader(self.coin).object(info).get("descriptor"), "descriptor"
            )
            requests.append({"desc": descriptor, "timestamp": "now", "label": address})
        for outcome in read.objects(await wallet.call("importdescriptors", (requests,))):
            if outcome.get("success") is not True:
                error = read.object(outcome.get("error", {}))
                raise NodeError(error.get("code", 0), str(error.get("message", "import failed")))

    async def _import_addresses(self, wallet: JsonRpc, addresses: Sequence[str]) -> None:
        # Where nothing but a rescan tells the past, one rescan at the end serves them all.
        last = len(addresses) - 1
        for place, address in enumerate(addresses):
            rescan = not self.scans and place == last
            await wallet.call("importaddress", (address, address, rescan))

    async def _recover(self, node: JsonRpc, wallet: JsonRpc, addresses: Sequence[str]) -> None:
        """An address handed out earlier (wallet lost, backup restored) may hold coins already: if it does,
        have the wallet read the chain again from the first of them."""
        read = Reader(self.coin)
        found = await node.call("scantxoutset", ("start", [f"addr({each})" for each in addresses]))
        outputs: list[dict[str, Any]] = read.objects(read.object(found).get("unspents"))
        if outputs:
            first = min(read.integer(each.get("height"), "height") for each in outputs)
            await wallet.call("rescanblockchain", (first,))


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "BTC": Dialect("BTC", Import.DESCRIPTORS),
        "LTC": Dialect("LTC", Import.ADDRESSES),
        "DOGE": Dialect(
            "DOGE",
            Import.ADDRESSES,
            address_info="validateaddress",
            fee_estimate="estimatefee",
            named_wallets=False,
            scans=False,
        ),
    }
)


def dialect_of(coin: str) -> Dialect:
    return DIALECTS[coin]

"""The watch-only wallet inside a Core-style node: which addresses it knows, and how it comes to know more.

Reading the past of a chain takes minutes to hours on a main network, so no stranger's order may cause it. An
address that was never handed out has no past: it is imported without one, many ahead at a time. The past is
read where it can matter: for addresses that must have been watched and are not (the wallet was lost), a
bounded time back; and before a new wallet hands out its first address although others were given out before.

The last address of all is the mark of a wallet that is whole: it is imported once that past has been read.

What differs between Core-style nodes: how an address comes under watch, with its past or without.

Bitcoin Core has descriptor wallets only; Litecoin Core's 0.21 (Debian's build) legacy wallets only; Dogecoin
Core 1.14 speaks the language of Bitcoin Core 0.14: one unnamed wallet, no named arguments, no output scan.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains.bitcoin import MAX_INDEX, AccountKey
from sandboxer.payments.chains.transport import TIMED_OUT, JsonRpc, NodeError, Reader, Wire, own_keys

_WALLET_NOT_FOUND = -18
_NO_SUCH_CALL = -32601
# Never handed out, so that nothing but this file has it imported.
MARK = MAX_INDEX
# Addresses that come under watch at a time, of which one is needed now.
AHEAD = 100
# After both database and wallet were lost: how many addresses from the next on may have been used before.
REGAINED = 300
# The past of an address that an open invoice may have: the life of an invoice and the watch after it.
LOOK_BACK_S = 10 * 24 * 3600
# As a moment, all three take it for "from the first block on".
WHOLE_CHAIN = 0


class Import(StrEnum):
    DESCRIPTORS = "descriptors"
    MULTI = "multi"


class WatchWallet:
    """`name`: None where the node has one unnamed wallet. `birthday`: unix seconds before which the keys were
    never used; with it, even the first address of a new wallet is looked up in the past."""

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect,
        name: str | None,
        keys: AccountKey | None,
        *,
        birthday: int | None = None,
        look_back_s: int = LOOK_BACK_S,
    ) -> None:
        self.node = JsonRpc(wire)
        self._rpc = JsonRpc(wire, f"/wallet/{name}" if name else "/")
        self._wire = wire
        self._read = Reader(wire.chain)
        self._dialect = dialect
        self._name = name
        self._keys = keys
        self._birthday = birthday
        self._look_back_s = look_back_s
        # Imports with a past, of which we have not seen the end: address -> since.
        self._unfinished: dict[str, int] = {}
        # The last of them was not answered in time, so the node still reads, or has done so.
        self._goes_on = False
        # Those that were read to the end meanwhile.
        self._regained: set[str] = set()

    # -- which addresses it knows --------------------------------------------------------------------------

    async def know_fresh(self, index: int) -> None:
        """Watch the address of this index before it is handed out. Cheap, unless the wallet was lost."""
        keys = own_keys(self._keys, self._wire)
        await self._refuse_while_reading()
        mark, wanted = keys.address(MARK), keys.address(index)
        unknown = await self._unknown((mark, wanted))
        if mark in unknown:
            await self._make_whole(index, mark)
            unknown = await self._unknown((wanted,))
        if wanted in unknown:
            await self._import(self._addresses(index, AHEAD), since=None)

    async def know_handed_out(self, addresses: Sequence[str]) -> None:
        """Watch addresses that somebody may have paid; the past of unknown ones is read from the chain."""
        await self._refuse_while_reading()
        if unknown := await self._unknown(addresses):
            await self._import(unknown, since=self._bounded_past())

    async def know_coins(self, addresses: Sequence[str]) -> None:
        """Watch addresses whose coins are to be spent, however old these are."""
        await self._refuse_while_reading()
        if unknown := await self._unknown(addresses):
            try:
                await self._dialect.watch_coins(self.node, self._rpc, unknown)
            except NodeError as error:
                raise self._wire.trouble(f"an address cannot be watched: {error}") from None

    async def _unknown(self, addresses: Sequence[str]) -> list[str]:
        calls = [(self._dialect.address_info, (address,)) for address in addresses]
        infos = [self._read.object(each) for each in await self.ask_all(calls)]
        return [
            address
            for address, info in zip(addresses, infos, strict=True)
            if not (info.get("iswatchonly") or info.get("ismine"))
        ]

    async def _make_whole(self, index: int, mark: str) -> None:
        """Complete a new wallet, which has no mark yet.

        If addresses were handed out before, their past is read.
        """
        is_first = index == 0 and self._birthday is None
        if not is_first and not await self._was_whole_before_marks(index):
            since = self._bounded_past() if self._birthday is None else self._birthday
            if own_keys(self._keys, self._wire).address(index) not in self._regained:
                await self._import(self._addresses(index, REGAINED), since=since)
        # Only now: a node that dies while it reads leaves a wallet that is not marked.
        await self._import([mark], since=None)
        self._regained.clear()

    async def _was_whole_before_marks(self, index: int) -> bool:
        """Return whether this is a complete wallet from before there were marks."""
        keys = own_keys(self._keys, self._wire)
        return index > 0 and not await self._unknown((keys.address(0), keys.address(index - 1)))

    def _addresses(self, index: int, number: int) -> list[str]:
        keys = own_keys(self._keys, self._wire)
        return [keys.address(each) for each in range(index, min(index + number, MARK))]

    async def _import(self, addresses: Sequence[str], *, since: int | None) -> None:
        if since is not None:
            self._unfinished |= dict.fromkeys(addresses, since)
        try:
            await self._dialect.watch(self.node, self._rpc, addresses, since=since)
        except NodeError as error:
            raise self._wire.trouble(f"an address cannot be watched: {error}") from None
        except ChainUnavailable as error:
            if since is not None and TIMED_OUT in str(error):
                self._goes_on = True
                raise self._wire.trouble("its wallet is new and reads the chain; try again later") from None
            raise
        for address in addresses:
            self._unfinished.pop(address, None)

    async def _refuse_while_reading(self) -> None:
        """Raise ChainUnavailable while the wallet reads the chain: its answers are incomplete then."""
        about = self._read.object(await self.ask("getwalletinfo"))
        # False, absent in old nodes (they answer nothing while they read), or how far it is.
        if isinstance(reading := about.get("scanning"), dict):
            done = float(reading.get("progress") or 0)
            raise self._wire.trouble(f"its wallet reads the chain ({done:.0%} done); try again later")
        if self._goes_on:
            # It went on after our patience had ended, and is done.
            self._regained |= self._unfinished.keys()
            self._unfinished.clear()
            self._goes_on = False
        for since in sorted(set(self._unfinished.values())):
            # The node died meanwhile: what it had not read is not known.
            again = [each for each, moment in self._unfinished.items() if moment == since]
            await self._import(again, since=since)

    def _bounded_past(self) -> int:
        return max(self._birthday or 0, int(time.time()) - self._look_back_s)

    async def why_unready(self) -> str | None:
        """Return why the node's wallet cannot be used, or None. The wallet is made if there is none."""
        (about,) = await self.answers([("getwalletinfo", ())])
        if isinstance(about, NodeError):
            if about.code == _NO_SUCH_CALL:
                return "its node has no wallet (was it started with -disablewallet?)"
            raise self._wire.trouble(str(about))
        if (why := self._dialect.why_another_wallet(self._read.object(about))) is not None:
            return why
        if isinstance(reading := about.get("scanning"), dict):
            return f"its wallet reads the chain ({float(reading.get('progress') or 0):.0%} done)"
        return None

    # -- asking it -----------------------------------------------------------------------------------------

    async def ask(self, method: str, *params: Any) -> Any:
        return (await self.ask_all([(method, params)]))[0]

    async def ask_all(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        answers = await self.answers(calls)
        for each in answers:
            if isinstance(each, NodeError):
                raise self._wire.trouble(str(each))
        return answers

    async def answers(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Return the answers, refusals included.

        The wallet is opened or made if the node does not know it.
        """
        found = await _answers(self._rpc, calls)
        if any(isinstance(each, NodeError) and each.code == _WALLET_NOT_FOUND for each in found):
            await self._open()
            found = await _answers(self._rpc, calls)
        return found

    async def _open(self) -> None:
        """Load the watch-only wallet, or make it: no keys, and none to be made in it."""
        # The node was started anew: what it was reading it reads no more.
        self._goes_on = False
        try:
            await self.node.call("loadwallet", (self._name,))
        except NodeError as missing:
            if missing.code != _WALLET_NOT_FOUND:
                raise self._wire.trouble(str(missing)) from None
            try:
                await self.node.call("createwallet", (self._name, True, True))
            except NodeError as error:
                raise self._wire.trouble(f"the watch-only wallet cannot be made: {error}") from None


async def _answers(rpc: JsonRpc, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
    if len(calls) > 1:
        return await rpc.batch(calls)
    try:
        return [await rpc.call(*calls[0])] if calls else []
    except NodeError as error:
        return [error]


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

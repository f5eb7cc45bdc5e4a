"""Monero through `monero-wallet-rpc`: a subaddress per invoice. A view-only wallet is enough to watch.

Without keys nobody can look a subaddress up on the chain, so the wallet's word is all there is; a daemon of
ours beside it (optional) tells height and block hashes apart from the wallet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from sandboxer.kernel.errors import AddressUsed, InvalidRequest
from sandboxer.payments.chains.addresses import check_monero_address, payment_uri
from sandboxer.payments.chains.contract import MOST_BEHIND, Deposit, why_slow
from sandboxer.payments.chains.transport import MONERO_PATH, TIMEOUT, JsonRpc, MoneroServer, NodeError, Wire

# "Unknown error" and "wrong address" of monero's wallet_rpc_server_error_codes.h: both are said of an address
# that is not the wallet's.
_NOT_OURS = frozenset({-1, -2})
# Of WALLET_RPC_VERSION_MAJOR in wallet_rpc_server_commands_defs.h.
_WALLET_RPC_MAJOR = 1
_NETTYPES = {"regtest": "fakechain"}


class MoneroWallet(MoneroServer):
    """`Chain` over a wallet server. Index i is subaddress i + 1 of the account: 0 is its main address, which
    may be known to anyone."""

    def __init__(
        self, url: str, *, daemon_url: str | None = None, timeout: httpx.Timeout | None = None, **login: Any
    ) -> None:
        """`login`: as `MoneroServer` takes it."""
        super().__init__(url, timeout=timeout, **login)
        self._daemon_wire = Wire(self.code, daemon_url, timeout=timeout or TIMEOUT) if daemon_url else None
        self._daemon = JsonRpc(self._daemon_wire, MONERO_PATH) if self._daemon_wire else None
        # Subaddresses never change hands, so what was asked once is known.
        self._minor_of: dict[str, int] = {}

    async def close(self) -> None:
        await super().close()
        if self._daemon_wire is not None:
            await self._daemon_wire.close()

    # -- Chain ---------------------------------------------------------------------------------------------

    async def tip(self) -> int:
        if self._daemon is not None:
            answer = await self._ask(self._daemon, "get_block_count")
            count = self._read.integer(answer.get("count"), "count", least=1)
        else:
            await self._ask(self._wallet, "refresh")
            answer = await self._ask(self._wallet, "get_height")
            count = self._read.integer(answer.get("height"), "height", least=1)
        return count - 1

    async def fresh_address(self, index: int) -> str:
        minor = index + 1
        address = await self._subaddress(minor)
        self._minor_of[address] = minor
        if await self.deposits([address]):
            raise AddressUsed(chain=self.code, index=index)
        return address

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        wanted = {}
        for address in addresses:
            self.check_address(address)
            if (minor := await self._minor(address)) is not None:
                wanted[minor] = address
        if not wanted:
            return []
        # Or it would tell what it knew some seconds ago; and without a daemon it must not tell anything.
        await self._ask(self._wallet, "refresh")
        query = {"in": True, "pool": True, "account_index": self.account, "subaddr_indices": sorted(wanted)}
        answer = await self._ask(self._wallet, "get_transfers", query)
        rows = [
            *self._read.objects(answer.get("in", [])),
            *self._read.objects(answer.get("pool", [])),
        ]
        return await self._checked([self._deposit(row, wanted) for row in rows])

    def check_address(self, text: str) -> None:
        check_monero_address(text, self.network)

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        return payment_uri(self.code, address, amount, label)

    # -- Checkable -----------------------------------------------------------------------------------------

    async def why_wrong(self) -> str | None:
        """The daemon knows its network; of the wallet its own address tells it, regtest and mainnet alike."""
        if self._daemon is not None and (why := await self._why_wrong_daemon(self._daemon)) is not None:
            return why
        main = await self._subaddress(0)
        try:
            self.check_address(main)
        except InvalidRequest:
            return f"its wallet is not of Monero's {self.network}"
        return None

    async def why_unready(self) -> str | None:
        """Whether the wallet server is one that we can talk to, and its wallet has read the chain."""
        version = self._read.integer((await self._ask(self._wallet, "get_version")).get("version"), "version")
        if version >> 16 != _WALLET_RPC_MAJOR:
            spoken = f"{version >> 16}.{version & 0xFFFF}"
            return f"its wallet server speaks version {spoken}, {_WALLET_RPC_MAJOR}.x is needed"
        if (why := await why_slow(self._look_up_first())) is not None:
            return f"{why}; its wallet may still be reading the chain"
        if self._daemon is None:
            return None
        read = await self._ask(self._wallet, "get_height")
        height = self._read.integer(read.get("height"), "height")
        if (tip := await self.tip()) - height > MOST_BEHIND:
            return f"its wallet has read {height} of {tip} blocks"
        return None

    async def _look_up_first(self) -> None:
        await self.deposits([await self._subaddress(0)])

    async def _why_wrong_daemon(self, daemon: JsonRpc) -> str | None:
        about = await self._ask(daemon, "get_info")
        nettype = self._read.text(about.get("nettype"), "nettype")
        if nettype != _NETTYPES.get(self.network, self.network):
            return f"its daemon is of {nettype}, not of Monero's {self.network}"
        height = self._read.integer(about.get("height"), "height")
        # Zero where it knows of no higher chain than its own.
        target = self._read.integer(about.get("target_height"), "target_height")
        # A chain of its own has nobody to be in step with.
        is_behind = about.get("synchronized") is not True and self.network != "regtest"
        if is_behind or target - height > MOST_BEHIND:
            return f"its daemon is not synchronised: {height} of {max(target, height)} blocks"
        return None

    # -- reading -------------------------------------------------------------------------------------------

    def _deposit(self, row: dict[str, Any], wanted: Mapping[int, str]) -> Deposit:
        place = self._read.object(row.get("subaddr_index"))
        minor = self._read.integer(place.get("minor"), "subaddress")
        if place.get("major") != self.account or row.get("address") != wanted.get(minor):
            raise self._read.nonsense(
                f"a payment to {str(row.get('address'))[:100]}, which was not asked for"
            )
        in_pool = row.get("type") == "pool"
        height = self._read.integer(row.get("height"), "height")
        return Deposit(
            chain=self.code,
            txid=self._read.hash(row.get("txid"), "txid"),
            # The wallet adds up what one transaction sends to one subaddress.
            output=f"{self.account}/{minor}",
            address=wanted[minor],
            amount=self._read.integer(row.get("amount"), "amount"),
            confirmations=0 if in_pool else self._read.integer(row.get("confirmations"), "confirmations"),
            height=None if in_pool else height,
            unlocked=self._read.integer(row.get("unlock_time"), "unlock_time") == 0,
            conflicted=row.get("double_spend_seen") is True,
        )

    async def _checked(self, deposits: Sequence[Deposit]) -> list[Deposit]:
        if not (mined := {each.height for each in deposits if each.height is not None}):
            return list(deposits)
        blocks = {height: await self._block_at(height) for height in mined}
        tip = await self.tip()
        checked = []
        for each in deposits:
            if each.height is not None:
                if each.confirmations > tip - each.height + 1:
                    raise self._read.nonsense(
                        f"{each.confirmations} confirmations at height {each.height} of {tip}"
                    )
                each = replace(each, block=blocks[each.height])
            checked.append(each)
        return checked

    async def _block_at(self, height: int) -> str | None:
        if self._daemon is None:
            return None
        answer = await self._ask(self._daemon, "get_block_header_by_height", {"height": height})
        return self._read.hash(self._read.object(answer.get("block_header")).get("hash"), "block hash")

    # -- subaddresses --------------------------------------------------------------------------------------

    async def _subaddress(self, minor: int) -> str:
        """The subaddress of this number; the wallet makes those up to it, in order, if it has not yet."""
        query = {"account_index": self.account, "address_index": [minor]}
        try:
            answer = self._read.object(await self._wallet.call("get_address", query))
        except NodeError:
            await self._make_up_to(minor)
            answer = await self._ask(self._wallet, "get_address", query)
        rows = self._read.objects(answer.get("addresses"))
        if len(rows) != 1 or rows[0].get("address_index") != minor:
            raise self._read.nonsense("another subaddress than the one asked for")
        return self._read.text(rows[0].get("address"), "address")

    async def _make_up_to(self, minor: int) -> None:
        listing = await self._ask(self._wallet, "get_address", {"account_index": self.account})
        known = len(self._read.objects(listing.get("addresses")))
        while known <= minor:
            made = await self._ask(self._wallet, "create_address", {"account_index": self.account})
            known = self._read.integer(made.get("address_index"), "address index", least=known) + 1

    async def _minor(self, address: str) -> int | None:
        """Which subaddress of ours this is; None: not ours, so nothing can have been paid to us there."""
        if address not in self._minor_of:
            try:
                answer = self._read.object(await self._wallet.call("get_address_index", {"address": address}))
            except NodeError as error:
                if error.code in _NOT_OURS:
                    return None
                raise self._wire.trouble(str(error)) from None
            place = self._read.object(answer.get("index"))
            if place.get("major") != self.account:
                return None
            self._minor_of[address] = self._read.integer(place.get("minor"), "subaddress")
        return self._minor_of[address]

    async def _ask(
        self, rpc: JsonRpc, method: str, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            return self._read.object(await rpc.call(method, params or {}))
        except NodeError as error:
            raise self._wire.trouble(str(error)) from None

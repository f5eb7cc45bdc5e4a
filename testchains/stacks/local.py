"""Both together, with wallets: what tests and the demo start.

with LocalStacks() as stacks:
    payer = stacks.wallet(SBTC=5_000)
    … x402 settings from stacks.settings(pay_to) …
    stacks.mine()
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from sandboxer.payments.stacks.transactions import StacksKey
from testchains.stacks.relay import LocalRelay
from testchains.stacks.simnet import ASSETS, NETWORK, Simnet, why_not
from testchains.stacks.sponsoring import Desk

__all__ = ["LocalStacks", "Wallet", "why_not"]
_SPONSORS_STX = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Wallet:
    key: StacksKey
    address: str


class LocalStacks:
    def __init__(self, *, block_milliseconds: int = 0) -> None:
        self.simnet = Simnet(block_milliseconds=block_milliseconds)
        self.network = NETWORK
        try:
            self.relay = LocalRelay(Desk(self.simnet, _new_key()))
            self.simnet.mint("STX", self.relay.desk.address, _SPONSORS_STX)
        except BaseException:
            self.simnet.close()
            raise

    def __enter__(self) -> LocalStacks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.relay.stop()
        self.simnet.close()

    @property
    def node_url(self) -> str:
        return self.simnet.url

    @property
    def relay_url(self) -> str:
        return self.relay.url

    def wallet(self, **funds: int) -> Wallet:
        """A new one; `SBTC=…`, `STX=…`, `USDCX=…` in smallest units."""
        key = _new_key()
        wallet = Wallet(key, key.address(mainnet=False))
        for asset, amount in funds.items():
            self.simnet.mint(asset, wallet.address, amount)
        return wallet

    def settings(self, pay_to: str, *assets: str, node: bool = True) -> dict[str, Any]:
        """This chain as an entry of `x402.networks`."""
        named = [{"code": code, "id": ASSETS[code]} for code in assets or ASSETS]
        entry = {"network": NETWORK, "pay_to": pay_to, "assets": named, "facilitator": self.relay_url}
        return {**entry, "rpc_url": self.node_url} if node else entry

    def balance(self, asset: str, address: str) -> int:
        return self.simnet.balance(asset, address)

    def mine(self, count: int = 1) -> int:
        return self.simnet.mine(count)

    def pay(self, address: str, atomic: int) -> str:
        return self.simnet.pay(address, atomic)

    def reorg(self, depth: int) -> None:
        self.simnet.reorg(depth)


def _new_key() -> StacksKey:
    return StacksKey.from_hex(secrets.token_hex(32))

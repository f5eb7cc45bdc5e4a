"""The four chains as the demo sees them: how to start one, what the shop must know of it, how an agent comes
by its first coins there, and who has how much."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sandboxer.kernel.clock import SystemClock
from sandboxer.payments.chains.configuration import ChainPlan, chains_from_json
from sandboxer.payments.rates import ASSETS, Asset
from sandboxer.payments.wallet.agent import AgentWallet, open_payer
from sandboxer.payments.wallet.spenders import Seed
from sandboxer.payments.wallet.x402 import Token
from testchains import litecoin, monero
from testchains.evm import KEYS, Anvil, running_anvil, why_no_anvil
from testchains.evm.anvil import NETWORK as ANVIL
from testchains.processes import free_port
from testchains.stacks import local as stacks
from testchains.stacks.simnet import ASSETS as STACKS_ASSETS
from testchains.stacks.simnet import NETWORK as SIMNET

PASSWORD = "node-password"
_UNLOCKED_WITHIN = 30


class Place(Protocol):
    key: str
    title: str
    asset: Asset
    # By x402 in the request itself, or to an invoice's address.
    is_x402: bool
    # Takes so long that the others begin without it: what the platform must know of it is known before.
    is_slow: bool

    def why_not(self) -> str | None:
        """What is missing on this machine, and how to get it."""

    def open(self) -> None:
        """Blocking; the nodes die with the thread that called it."""

    def close(self) -> None: ...
    def settings(self, shop: Seed) -> Mapping[str, Any]:
        """The platform's settings, as far as this chain goes."""

    def fund(self, wallet: AgentWallet) -> None:
        """Coins out of nothing: the only thing the agent is given."""

    def payer_has(self, wallet: AgentWallet) -> int: ...
    def shop_has(self, shop: Seed) -> int: ...
    def mine(self) -> None: ...


@dataclass
class Evm:
    key = "evm"
    title = "EVM (anvil)"
    asset = ASSETS["USDC"]
    is_x402 = True
    is_slow = False
    folder: Path
    _open: ExitStack = field(default_factory=ExitStack)
    _chain: Anvil | None = None

    @property
    def chain(self) -> Anvil:
        assert self._chain is not None, "it was opened"
        return self._chain

    def why_not(self) -> str | None:
        missing = why_no_anvil()
        return missing and f"{missing}: scripts/system-packages test"

    def open(self) -> None:
        self._chain = self._open.enter_context(running_anvil(self.folder))

    def close(self) -> None:
        self._open.close()

    def settings(self, shop: Seed) -> Mapping[str, Any]:
        dollar = {"code": "USDC", "id": self.chain.asset, "name": "Test Dollar", "version": "2"}
        network = {"network": ANVIL, "pay_to": shop.evm_address(), "rpc_url": self.chain.url}
        # Settled by the platform itself, whose gas is anvil's.
        return {"x402": {**network, "assets": [dollar]}, "x402_signer_key": KEYS[2]}

    @property
    def tokens(self) -> Sequence[Token]:
        return (Token(network=ANVIL, id=self.chain.asset, code="USDC"),)

    @property
    def stacks_node(self) -> str | None:
        return None

    def fund(self, wallet: AgentWallet) -> None:
        self.chain.fund(wallet.seed.evm_address(), 5_000_000)

    def payer_has(self, wallet: AgentWallet) -> int:
        return self.chain.balance(wallet.seed.evm_address())

    def shop_has(self, shop: Seed) -> int:
        return self.chain.balance(shop.evm_address())

    def mine(self) -> None:
        self.chain.mine()


@dataclass
class Stacks:
    key = "stacks"
    title = "Stacks (simnet + relay)"
    asset = ASSETS["SBTC"]
    is_x402 = True
    is_slow = False
    folder: Path
    _chain: stacks.LocalStacks | None = None

    @property
    def chain(self) -> stacks.LocalStacks:
        assert self._chain is not None, "it was opened"
        return self._chain

    def why_not(self) -> str | None:
        return stacks.why_not()

    def open(self) -> None:
        self._chain = stacks.LocalStacks()

    def close(self) -> None:
        self.chain.close()

    def settings(self, shop: Seed) -> Mapping[str, Any]:
        return {"x402": self.chain.settings(shop.stacks_address(mainnet=False), "SBTC")}

    @property
    def tokens(self) -> Sequence[Token]:
        return (Token(network=SIMNET, id=STACKS_ASSETS["SBTC"].partition("::")[0], code="SBTC"),)

    @property
    def stacks_node(self) -> str | None:
        return self.chain.node_url

    def fund(self, wallet: AgentWallet) -> None:
        address = wallet.seed.stacks_address(mainnet=False)
        self.chain.simnet.mint("SBTC", address, 20_000)
        self.mine()

    def payer_has(self, wallet: AgentWallet) -> int:
        return self.chain.balance("SBTC", wallet.seed.stacks_address(mainnet=False))

    def shop_has(self, shop: Seed) -> int:
        return self.chain.balance("SBTC", shop.stacks_address(mainnet=False))

    def mine(self) -> None:
        self.chain.mine()


class ByInvoice:
    """What LTC and XMR share: a purse of the agent's own, over a node."""

    is_x402 = False

    def __init__(self, folder: Path) -> None:
        self.password_file = folder / PASSWORD

    def plan(self) -> ChainPlan:
        raise NotImplementedError

    def payer_has(self, wallet: AgentWallet) -> int:
        async def ask() -> int:
            async with open_payer(wallet, self.plan(), SystemClock()) as purse:
                return await purse.balance()

        return asyncio.run(ask())

    def pay(self, wallet: AgentWallet, address: str, atomic: int) -> str:
        async def send() -> str:
            async with open_payer(wallet, self.plan(), SystemClock()) as purse:
                return await purse.send(address, atomic)

        return asyncio.run(send())


class Ltc(ByInvoice):
    is_slow = False
    key = "ltc"
    title = "Litecoin (litecoind)"
    asset = ASSETS["LTC"]

    def why_not(self) -> str | None:
        return litecoin.why_not()

    def open(self) -> None:
        self.chain = litecoin.Litecoin()
        self.password_file.write_text(self.chain.password)

    def close(self) -> None:
        self.chain.close()

    def settings(self, shop: Seed) -> Mapping[str, Any]:
        return {"chains": {"LTC": self._node(shop.account("LTC", "regtest").xpub())}}

    def plan(self) -> ChainPlan:
        # The wallet's own key takes the xpub's place. Its node keeps a wallet of its own for the agent.
        (plan,) = chains_from_json({"LTC": {**self._node("of the wallet"), "wallet": "agent-watch"}})
        return plan

    def _node(self, xpub: str) -> dict[str, str]:
        login = {"user": self.chain.user, "password_file": str(self.password_file)}
        return {"rpc": self.chain.url, "network": "regtest", **login, "xpub": xpub}

    def fund(self, wallet: AgentWallet) -> None:
        self.chain.pay(wallet.seed.account("LTC", "regtest").address(0), 5 * 10**8)
        self.mine()

    def shop_has(self, shop: Seed) -> int:
        """Asked of the chain's own set of unspent outputs, not of the shop."""
        key = shop.account("LTC", "regtest")
        mine = [f"addr({key.address(index)})" for index in range(10)]
        return int(self.chain.call("scantxoutset", "start", mine)["total_amount"] * 10**8)

    def mine(self) -> None:
        self.chain.mine()


class Xmr(ByInvoice):
    is_slow = True
    key = "xmr"
    title = "Monero (monerod)"
    asset = ASSETS["XMR"]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports = {name: free_port() for name in ("daemon", "bank", "shop", "agent")}

    def why_not(self) -> str | None:
        return monero.why_not()

    def open(self) -> None:
        self.chain = monero.Monero(guests=("agent",), ports=self._ports)

    def close(self) -> None:
        self.chain.close()

    def settings(self, shop: Seed) -> Mapping[str, Any]:
        self.password_file.write_text(monero.Monero.password)
        return {"chains": {"XMR": {**self._server("shop"), "daemon": self._url("daemon")}}}

    def plan(self) -> ChainPlan:
        (plan,) = chains_from_json({"XMR": self._server("agent")})
        return plan

    def _server(self, owner: str) -> dict[str, str]:
        login = {"user": monero.Monero.user, "password_file": str(self.password_file)}
        return {"wallet_rpc": self._url(owner), "network": "regtest", **login}

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def fund(self, wallet: AgentWallet) -> None:
        """Monero's keys are in the agent's wallet server; of the file only the caps count here."""
        server = self.chain.server("agent")
        self.chain.pay(server.call("get_address")["address"], 10**12)
        # Outputs can be spent when they are ten blocks deep.
        for _ in range(_UNLOCKED_WITHIN):
            self.chain.mine()
            server.call("refresh")
            if server.call("get_balance")["unlocked_balance"]:
                return
        raise RuntimeError("the agent's first Monero did not unlock")

    def shop_has(self, shop: Seed) -> int:
        server = self.chain.server("shop")
        server.call("refresh")
        return int(server.call("get_balance")["balance"])

    def mine(self) -> None:
        self.chain.mine()


PLACES: Mapping[str, type[Evm] | type[Stacks] | type[Ltc] | type[Xmr]] = {
    place.key: place for place in (Evm, Stacks, Ltc, Xmr)
}

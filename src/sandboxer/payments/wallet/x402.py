"""An agent's wallet answers a 402: it picks an offer that it can pay within its caps, counts it and signs it.

A shop names tokens by contract and could call any of them a dollar. So only tokens are paid with that the
wallet's holder named or that are published under that address. A signed payment stays counted whatever the
shop answers, because the shop may use it until it expires.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eth_account import Account
from x402 import x402ClientSync
from x402.http.utils import encode_payment_signature_header
from x402.mechanisms.evm.default_assets import find_default_asset
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas import PaymentPayload, PaymentRequired, PaymentRequirements

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, InvalidRequest, SandboxerError
from sandboxer.kernel.values import value_class
from sandboxer.payments.chains.configuration import check_spend
from sandboxer.payments.rates import ASSETS, as_text
from sandboxer.payments.stacks.nodes import next_nonce
from sandboxer.payments.stacks.shop import ExactStacksClient
from sandboxer.payments.stacks.transactions import StacksKey
from sandboxer.payments.stacks.transfers import CAIP_FAMILY, NETWORKS, PUBLISHED
from sandboxer.payments.wallet.agent import AgentWallet

_EXACT = "exact"


@value_class
class Token:
    """A contract on a network, and the asset that the holder accepts it as: `eip155:8453/0x833…=USDC`."""

    network: str
    id: str
    code: str


@value_class
class Signed:
    """A payment ready to be sent, and what it would move."""

    header: str
    offer: PaymentRequirements
    code: str

    @property
    def amount(self) -> str:
        return as_text(int(self.offer.amount), ASSETS[self.code])


class X402Payer:
    """Signs for `eip155:*` with the wallet's EVM key, and for Stacks where a node tells the next nonce."""

    def __init__(
        self,
        wallet: AgentWallet,
        clock: Clock,
        *,
        tokens: Iterable[Token] = (),
        assets: Iterable[str] = (),
        stacks_node: str | None = None,
    ) -> None:
        """`assets`: pay in these only (codes); none: in whatever has a cap."""
        self._wallet = wallet
        self._clock = clock
        self._assets = frozenset(assets)
        self._tokens = {(token.network, token.id.lower()): token.code for token in tokens}
        self._stacks_node = stacks_node
        # The last payment that was signed.
        self.signed: Signed | None = None

    def __call__(self, required: Mapping[str, Any]) -> str | None:
        """As `Sandboxer(wallet=…)` wants it: a 402's document in, a PAYMENT-SIGNATURE out."""
        return self.sign(PaymentRequired.model_validate(required)).header

    def sign(self, required: PaymentRequired) -> Signed:
        """The first offer that fits. Raises Forbidden saying why none does."""
        offer, code = self._choose(required)
        id = f"x402:{secrets.token_hex(16)}"
        self._wallet.charge(id, code, int(offer.amount), now=self._clock.now())
        payload = self._client(offer).create_payment_payload(required)
        if not isinstance(payload, PaymentPayload):
            raise InvalidRequest(field="payment", why="only version 2 of x402 is spoken here")
        self.signed = Signed(header=encode_payment_signature_header(payload), offer=offer, code=code)
        return self.signed

    def _choose(self, required: PaymentRequired) -> tuple[PaymentRequirements, str]:
        refusals: list[str] = []
        now = self._clock.now()
        for offer in required.accepts:
            code = self.code_of(offer.network, offer.asset)
            is_wanted = not self._assets or code in self._assets
            if code is None or offer.scheme != _EXACT or not is_wanted:
                refusals.append(f"{offer.asset} on {offer.network} is not paid with here")
                continue
            if offer.network in NETWORKS and self._stacks_node is None:
                refusals.append(f"no node of {offer.network} was named, which would tell the next nonce")
                continue
            try:
                content = self._wallet.content
                check_spend(content.caps.get(code), content.journal, code, int(offer.amount), now=now)
            except SandboxerError as error:
                refusals.append(str(error))
                continue
            return offer, code
        raise Forbidden(why="; ".join(refusals) or "the shop offers no way to pay")

    def code_of(self, network: str, asset: str) -> str | None:
        """Return the asset of a token; None: it is unknown, so it is not spent."""
        if (named := self._tokens.get((network, asset.lower()))) is not None:
            return named
        for code, where in PUBLISHED.get(network, {}).items():
            if asset == where.partition("::")[0]:
                return code
        if network.startswith("eip155:") and (entry := find_default_asset(asset, network)) is not None:
            symbol = str(entry["symbol"]).upper()
            return symbol if symbol in ASSETS else None
        return None

    def _client(self, offer: PaymentRequirements) -> x402ClientSync:
        choose: Callable[[int, list[Any]], Any] = lambda _, offered: next(  # noqa: E731
            one for one in offered if one == offer
        )
        client = x402ClientSync(payment_requirements_selector=choose)
        # The wallet's own caps were asked.
        client.set_spend_controls(False)
        seed = self._wallet.seed
        node = self._stacks_node
        if offer.network in NETWORKS and node is not None:
            key = StacksKey.from_hex(seed.stacks_key().hex())
            client.register(CAIP_FAMILY, ExactStacksClient(key, lambda address: next_nonce(node, address)))
        else:
            register_exact_evm_client(client, Account.from_key(seed.evm_key()))
        return client


def token_named(text: str) -> Token:
    """`eip155:31337/0xabc…=USDC`, as given on a command line."""
    where, equals, code = text.rpartition("=")
    network, slash, id = where.partition("/")
    if not (equals and slash and id and network.count(":") == 1) or code.upper() not in ASSETS:
        raise InvalidRequest(
            field="token", why=f"{text!r} is not NETWORK/CONTRACT=CODE, as eip155:8453/0x…=USDC"
        )
    return Token(network=network, id=id, code=code.upper())

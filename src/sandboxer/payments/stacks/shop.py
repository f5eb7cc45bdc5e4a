"""`exact` on Stacks: where an operator is paid and in what, and the scheme for both sides of the x402
protocol.

The settings are checked once, at start. The paying side signs a transfer that a relay will sponsor.

The pure checks of the selling side decide whether a transaction is the payment asked for, and whether the
chain accepts it. A seller may rely only on what the payer signed: who, to whom, how much of what, on which
chain. Post-conditions are checked because a wrong one makes the chain undo a transfer that looks good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from x402.schemas import PaymentRequirements

from sandboxer.identity.signatures.stacks import ContractPrincipal
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.rates import Asset
from sandboxer.payments.stacks.clarity import AssetName, FtCondition, Mode, Origin, Sent
from sandboxer.payments.stacks.transactions import (
    MEMO_BYTES,
    StacksKey,
    Transaction,
    parse_hex,
    verify_origin,
    write_transaction,
)
from sandboxer.payments.stacks.transfers import (
    NETWORKS,
    PUBLISHED,
    SCHEME,
    STX,
    StacksNetwork,
    Transfer,
    asset_name,
    principal,
    read_transfer,
    sponsored_transfer,
)
from sandboxer.payments.x402.ways import IN_PROCESS, Accepted, NetworkSettings

# How long a signed payment may take to reach us, as the published middleware has it.
TIMEOUT_S = 300
# As the published clients call them.
_TOKEN_TYPES = {"SBTC": "sBTC", "USDCX": "USDCx", "STX": "STX"}


@brief_value_class
class Token:
    """A token to pay with; `name` None is native STX."""

    asset: Asset
    name: AssetName | None

    @property
    def wire(self) -> str:
        """The `asset` of x402's requirements."""
        return STX if self.name is None else self.name.contract.text

    def extra(self) -> dict[str, str | int]:
        """What a paying client needs besides: above all the token's own name, for its post-condition."""
        facts: dict[str, str | int] = {
            "tokenType": _TOKEN_TYPES.get(self.asset.code, self.asset.code),
            "decimals": self.asset.decimals,
        }
        return facts if self.name is None else {**facts, "assetName": self.name.text}


@value_class
class StacksShop:
    network: StacksNetwork
    pay_to: str
    relay: str
    tokens: tuple[Token, ...]
    # A node's or explorer's API, to see for ourselves what is on chain; without one, the relay is believed.
    node: str | None = None
    # Another one: nothing is taken back unless both say so.
    second_node: str | None = None
    timeout_s: int = TIMEOUT_S
    # Demanded in every transfer: tells apart installations that are paid at one address.
    memo: str | None = None

    def token(self, wire: str) -> Token | None:
        return next((token for token in self.tokens if token.wire == wire), None)


def stacks_shop(settings: NetworkSettings) -> StacksShop:
    """Raises InvalidRequest naming what cannot be."""
    if (chain := NETWORKS.get(settings.network)) is None:
        raise _bad(settings.network, f"is none of {', '.join(NETWORKS)}")
    if settings.facilitator == IN_PROCESS:
        raise _bad(chain.caip2, "needs the address of a sponsor relay as its facilitator")
    _same_network(chain, settings.pay_to, "pay_to")
    return StacksShop(
        network=chain,
        pay_to=settings.pay_to,
        relay=_url(chain, settings.facilitator),
        node=None if settings.rpc_url is None else _url(chain, settings.rpc_url),
        second_node=None if settings.second_rpc_url is None else _url(chain, settings.second_rpc_url),
        tokens=tuple(_token(chain, asset) for asset in settings.assets),
        memo=_memo(chain, settings.options.get("memo")),
    )


def _memo(chain: StacksNetwork, given: object) -> str | None:
    if given is not None and not (isinstance(given, str) and 0 < len(given.encode()) <= MEMO_BYTES):
        raise _bad(chain.caip2, f"options.memo is a text of 1 to {MEMO_BYTES} bytes")
    return given


def _token(chain: StacksNetwork, given: Accepted) -> Token:
    """Its id is `STX`, `address.contract::token`, or `address.contract` where the token's name is known."""
    code = given.asset.code
    if (given.id == STX) != (code == STX):
        raise _bad(chain.caip2, f"{code} cannot be {given.id}")
    if given.id == STX:
        return Token(given.asset, None)
    known = {where.partition("::")[0]: where for where in PUBLISHED[chain.caip2].values()}
    name = asset_name(str(given.extra.get("assetName", known.get(given.id, given.id))))
    _same_network(chain, name.contract.text, code)
    return Token(given.asset, name)


def _same_network(chain: StacksNetwork, text: str, what: str) -> None:
    found = principal(text)
    address = found.address if isinstance(found, ContractPrincipal) else found
    if (address.network == "mainnet") != chain.mainnet:
        raise _bad(chain.caip2, f"{what} is an address of the other network")


def _url(chain: StacksNetwork, text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise _bad(chain.caip2, "facilitator and rpc_url are http(s) addresses")
    return text.rstrip("/")


def _bad(network: str, why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"{network} {why}")


# The next nonce of an address: from a node, plus what was signed and is not there yet.
Nonces = Callable[[str], int]


class ExactStacksClient:
    """Implements x402's SchemeNetworkClient; registered for `stacks:1` or `stacks:2147483648`."""

    scheme = SCHEME

    def __init__(self, key: StacksKey, nonces: Nonces) -> None:
        self._key = key
        self._nonces = nonces

    def create_payment_payload(self, requirements: PaymentRequirements) -> dict[str, Any]:
        if (network := NETWORKS.get(str(requirements.network))) is None:
            raise InvalidRequest(field="network", why=f"{requirements.network} is no Stacks network")
        memo = requirements.extra.get("memo", "")
        signed = sponsored_transfer(
            self._key,
            network=network,
            recipient=requirements.pay_to,
            amount=int(requirements.amount),
            nonce=self._nonces(self._key.address(mainnet=network.mainnet)),
            token=_token_asked(requirements),
            memo=memo.encode() if isinstance(memo, str) else b"",
        )
        return {"transaction": write_transaction(signed).hex()}

    def get_asset_decimals(self, asset: str, network: str) -> int | None:
        """x402's spend controls ask; only the published tokens are known."""
        decimals = {"SBTC": 8, "STX": 6, "USDCX": 6}
        for code, where in PUBLISHED.get(network, {}).items():
            if asset == where.partition("::")[0]:
                return decimals[code]
        return None


def _token_asked(requirements: PaymentRequirements) -> AssetName | None:
    """The seller names the token; a name of another contract than the one to be paid is not signed."""
    if requirements.asset == STX:
        return None
    named = requirements.extra.get("assetName")
    published = PUBLISHED[str(requirements.network)].values()
    known = next((where for where in published if where.startswith(requirements.asset + "::")), None)
    if not isinstance(named, str) and known is None:
        raise InvalidRequest(field="extra.assetName", why=f"what is the token of {requirements.asset[:90]}?")
    token = asset_name(named if isinstance(named, str) else str(known))
    if token.contract.text != requirements.asset:
        raise InvalidRequest(field="extra.assetName", why="it is not a token of the asset's contract")
    return token


# The reasons of the codec in x402's words; what is not here is an invalid payload.
_WORDS = {
    "signature_validation_failed": "signature_validation_failed",
    "multisig": "invalid_transaction_state",
    "unsupported_payload": "invalid_transaction_state",
    "not_a_transfer": "invalid_transaction_state",
}


@value_class
class Payment:
    """A checked payment. Its identity is (network, payer, nonce), because a sponsor changes its txid."""

    network: str
    payer: str
    nonce: int
    token: Token
    amount: int
    # Before sponsoring: never to be looked for on chain.
    unsponsored_txid: str
    memo: bytes = b""

    @property
    def key(self) -> str:
        return f"{self.network}:{self.payer}:{self.nonce}"


class Unpayable(Exception):
    """The transaction is not the payment asked for; `reason` is x402's code."""

    def __init__(self, reason: str, why: str, payer: str | None = None) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why
        self.payer = payer


def check_payment(hex_text: object, asked: PaymentRequirements, shop: StacksShop) -> Payment:
    """Raises Unpayable unless this transaction pays what was asked for."""
    token = _check_asked(asked, shop)
    transaction, transfer = _read(hex_text)
    payer = transaction.origin_address
    network = shop.network
    if (transaction.version, transaction.chain_id) != (network.version, network.chain_id):
        raise Unpayable("invalid_network", f"it is not signed for {network.caip2}", payer)
    _check_transfer(transfer, asked, token, payer)
    _check_sponsoring(transaction, payer)
    _check_post_conditions(transaction, token, transfer.amount, payer)
    return Payment(
        network=network.caip2,
        payer=payer,
        nonce=transaction.origin.nonce,
        token=token,
        amount=transfer.amount,
        unsponsored_txid=transaction.txid,
        memo=transfer.memo,
    )


def _read(hex_text: object) -> tuple[Transaction, Transfer]:
    if not isinstance(hex_text, str):
        raise Unpayable("invalid_payload", "payload.transaction is not a string")
    payer = None
    try:
        transaction = parse_hex(hex_text)
        verify_origin(transaction)
        payer = transaction.origin_address
        return transaction, read_transfer(transaction)
    except InvalidRequest as refusal:
        reason = _WORDS.get(str(refusal.facts.get("reason")), "invalid_payload")
        raise Unpayable(reason, str(refusal.facts.get("why")), payer) from None


def _check_asked(asked: PaymentRequirements, shop: StacksShop) -> Token:
    """Check the requirements, which come back from the payer and are not trusted."""
    if not (asked.amount.isascii() and asked.amount.isdigit() and len(asked.amount) <= 39):
        raise Unpayable("invalid_payment_requirements", "the amount is not a whole number")
    if asked.network != shop.network.caip2:
        raise Unpayable("invalid_network", f"paid on {shop.network.caip2} here")
    if (token := shop.token(asked.asset)) is None:
        raise Unpayable("unrecognized_asset", f"{asked.asset[:90]} is not taken here")
    if asked.pay_to != shop.pay_to:
        raise Unpayable("invalid_payment_requirements", "payTo is not ours")
    if int(asked.amount) < 1:
        raise Unpayable("invalid_payment_requirements", "the amount is not above zero")
    return token


def _check_transfer(transfer: Transfer, asked: PaymentRequirements, token: Token, payer: str) -> None:
    memo = asked.extra.get("memo")
    expected = None if token.name is None else token.name.contract.text
    if transfer.contract != expected:
        raise Unpayable(
            "unrecognized_asset", f"it pays {transfer.contract or 'STX'}, not {token.wire}", payer
        )
    if transfer.sender is not None and transfer.sender != payer:
        raise Unpayable("sender_mismatch", "it moves tokens of another than who signed", payer)
    if transfer.recipient != asked.pay_to:
        raise Unpayable("recipient_mismatch", f"it pays {transfer.recipient}", payer)
    if transfer.recipient == payer:
        raise Unpayable("recipient_mismatch", "nobody can pay himself", payer)
    if transfer.amount < int(asked.amount):
        raise Unpayable("amount_insufficient", f"{transfer.amount} of {asked.amount}", payer)
    if isinstance(memo, str) and transfer.memo != memo.encode():
        raise Unpayable("invalid_payload", "the memo is not the one asked for", payer)


def _check_sponsoring(transaction: Transaction, payer: str) -> None:
    if transaction.sponsor is None:
        raise Unpayable("invalid_transaction_state", "it is not made to be sponsored (auth type 5)", payer)
    if transaction.sponsor.signed or transaction.sponsor.fee or transaction.sponsor.nonce:
        raise Unpayable("invalid_transaction_state", "its sponsor's place is taken already", payer)


def _check_post_conditions(transaction: Transaction, token: Token, amount: int, payer: str) -> None:
    state = "invalid_transaction_state"
    conditions = transaction.post_conditions
    if token.name is None:
        if conditions:
            raise Unpayable(state, "the chain refuses STX transfers with post-conditions", payer)
        return
    if transaction.mode is not Mode.DENY:
        raise Unpayable(state, "its post-condition mode is not deny", payer)
    if len(conditions) != 1 or not isinstance(conditions[0], FtCondition):
        raise Unpayable(state, "one fungible post-condition is needed, or the chain undoes it", payer)
    condition = conditions[0]
    who = condition.principal
    if not (isinstance(who, Origin) or who == principal(payer)):
        raise Unpayable(state, "its post-condition is about another than the payer", payer)
    if condition.asset != token.name:
        raise Unpayable(state, f"its post-condition is about {condition.asset.text}", payer)
    if (condition.code, condition.amount) != (Sent.EQUAL, amount):
        raise Unpayable(state, f"its post-condition does not say: exactly {amount}", payer)

"""A sponsored transfer is the only kind of transaction that pays here; it is made and read in this file.

A token transfer promises by its post-condition to move exactly its amount, and nothing else may move (deny
mode). Native STX transfers carry none: the chain refuses them with any, since amount and recipient are
already in what is signed.

The two Stacks networks by their CAIP-2 names, and the tokens people pay with there.

The contracts come from others' published code, so every one can be set anew by the operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandboxer.identity.signatures.stacks import (
    ContractPrincipal,
    Some,
    StacksAddress,
    UInt,
    Value,
    stacks_address,
)
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.stacks.clarity import (
    CLARITY_NAME,
    CONTRACT_NAME,
    AssetName,
    FtCondition,
    Mode,
    Sent,
    malformed,
)
from sandboxer.payments.stacks.transactions import (
    MAINNET_VERSION,
    MEMO_BYTES,
    TESTNET_VERSION,
    UNSPONSORED,
    ContractCall,
    Payload,
    StacksKey,
    TokenTransfer,
    Transaction,
    sign_origin,
)

_MOST = 2**64 - 1
SCHEME = "exact"
CAIP_FAMILY = "stacks:*"
STX = "STX"


@value_class
class Transfer:
    """What a transaction says it pays; `sender` is None where the payload does not name one (STX)."""

    contract: str | None
    recipient: str
    amount: int
    sender: str | None
    memo: bytes


@brief_value_class
class StacksNetwork:
    caip2: str
    version: int
    chain_id: int

    @property
    def mainnet(self) -> bool:
        return self.version == MAINNET_VERSION


MAINNET = StacksNetwork("stacks:1", MAINNET_VERSION, 1)
TESTNET = StacksNetwork("stacks:2147483648", TESTNET_VERSION, 2147483648)
NETWORKS: Mapping[str, StacksNetwork] = {network.caip2: network for network in (MAINNET, TESTNET)}
# Code of the asset in payments/rates.py -> `contract::token`, or STX itself.
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    MAINNET.caip2: {
        "SBTC": "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",
        "STX": STX,
        "USDCX": "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token",
    },
    TESTNET.caip2: {
        "SBTC": "ST1F7QA2MDF17S807EPA36TSS8AMEFY4KA9TVGWXT.sbtc-token::sbtc-token",
        "STX": STX,
        "USDCX": "ST1PQHQKV0RJXZFY1DGX8MNSNYVE3VGZJSRTPGZGM.usdcx::usdcx-token",
    },
}


def sponsored_transfer(
    key: StacksKey,
    *,
    network: StacksNetwork,
    recipient: str,
    amount: int,
    nonce: int,
    token: AssetName | None = None,
    memo: bytes = b"",
) -> Transaction:
    """Sign a transfer with `key`, with an empty place for the sponsor and no fee of its own. Without a token
    it is native STX.
    """
    if not (0 < amount <= _MOST and 0 <= nonce <= _MOST and len(memo) <= MEMO_BYTES):
        raise malformed("an amount has 1 to 64 bits, a nonce 64 bits, a memo up to 34 bytes")
    sender, to = key.condition(nonce=nonce, fee=0), principal(recipient)
    conditions: tuple[FtCondition, ...] = ()
    payload: Payload = TokenTransfer(to, amount, memo.ljust(MEMO_BYTES, b"\x00"))
    if token is not None:
        payer = sender.address(mainnet=network.mainnet)
        conditions = (FtCondition(payer, token, Sent.EQUAL, amount),)
        arguments = (UInt(amount), payer, to, Some(memo) if memo else None)
        payload = ContractCall(token.contract, "transfer", arguments)
    unsigned = Transaction(
        version=network.version,
        chain_id=network.chain_id,
        origin=sender,
        sponsor=UNSPONSORED,
        mode=Mode.DENY,
        post_conditions=conditions,
        payload=payload,
    )
    return sign_origin(unsigned, key)


def read_transfer(transaction: Transaction) -> Transfer:
    """Raises unless it is an STX transfer or a SIP-010 `transfer` with its four arguments."""
    match transaction.payload:
        case TokenTransfer(recipient=recipient, amount=amount, memo=memo):
            return Transfer(
                contract=None, recipient=recipient.text, amount=amount, sender=None, memo=memo.rstrip(b"\x00")
            )
        case ContractCall(
            contract=contract,
            function="transfer",
            arguments=(
                UInt(value=amount),
                (StacksAddress() | ContractPrincipal()) as sender,
                (StacksAddress() | ContractPrincipal()) as recipient,
                memo,
            ),
        ):
            return Transfer(
                contract=contract.text,
                recipient=recipient.text,
                amount=amount,
                sender=sender.text,
                memo=_memo(memo),
            )
    raise malformed("it is not a SIP-010 transfer (amount, sender, recipient, memo)", "not_a_transfer")


def principal(text: str) -> StacksAddress | ContractPrincipal:
    return contract_principal(text) if "." in text else stacks_address(text)


def contract_principal(text: str) -> ContractPrincipal:
    address, _, name = text.partition(".")
    if CONTRACT_NAME.fullmatch(name) is None:
        raise malformed(f"{text[:90]} is not address.contract-name", "bad_contract")
    return ContractPrincipal(stacks_address(address), name)


def asset_name(text: str) -> AssetName:
    """`address.contract::token`, as explorers write it."""
    contract, _, name = text.partition("::")
    if CLARITY_NAME.fullmatch(name) is None:
        raise malformed(f"{text[:130]} is not address.contract::token-name", "bad_contract")
    return AssetName(contract_principal(contract), name)


def _memo(value: Value) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Some) and isinstance(value.value, bytes) and len(value.value) <= MEMO_BYTES:
        return value.value
    raise malformed("the memo is not an optional buffer of up to 34 bytes", "not_a_transfer")

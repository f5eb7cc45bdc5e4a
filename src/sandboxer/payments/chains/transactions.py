"""Building and signing transactions of the Bitcoin family: which outputs go in, what they may cost.

Signatures are deterministic: the same order over the same outputs is the same transaction, so sending it
again after a lost answer cannot pay twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from embit.bip32 import HDKey
from embit.hashes import hash160
from embit.script import Script as RawScript
from embit.script import Witness, script_sig_p2pkh, witness_p2wpkh
from embit.transaction import SIGHASH, Transaction, TransactionInput, TransactionOutput

from sandboxer.kernel.errors import Conflict
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.chains.derivation import Script

_REPLACEABLE = 0xFFFFFFFD


@dataclass(frozen=True)
class FeeRule:
    """Atomic units for 1000 virtual bytes; `dust`: below this an output is not relayed. The ceiling holds
    against a node that names a fee to burn our coins."""

    floor: int
    usual: int
    ceiling: int
    dust: int


FEES: Mapping[str, FeeRule] = MappingProxyType(
    {
        "BTC": FeeRule(floor=1_000, usual=5_000, ceiling=500_000, dust=546),
        "LTC": FeeRule(floor=1_000, usual=10_000, ceiling=1_000_000, dust=5_500),
        "DOGE": FeeRule(floor=1_000_000, usual=1_000_000, ceiling=200_000_000, dust=1_000_000),
    }
)

_OVERHEAD = 11
_OUTPUT = 34
_INPUT: Mapping[Script, int] = MappingProxyType(
    {Script.P2PKH: 149, Script.P2SH_P2WPKH: 92, Script.P2WPKH: 69}
)


def fee_for(inputs: int, outputs: int, kind: Script, rate: int | None, rule: FeeRule) -> int:
    per_thousand = min(max(rate or rule.usual, rule.floor), rule.ceiling)
    size = _OVERHEAD + inputs * _INPUT[kind] + outputs * _OUTPUT
    return -(-size * per_thousand // 1000)


@dataclass(frozen=True)
class Spending:
    """Decided, not yet signed: `change` is 0 when what stays over is too little to come back."""

    inputs: tuple[Deposit, ...]
    fee: int
    change: int


def choose(coins: Sequence[Deposit], amount: int, kind: Script, rate: int | None, rule: FeeRule) -> Spending:
    """Confirmed and large first; as few as carry the amount and the fee. Ordered, so that a repeat chooses
    the same."""
    if amount < rule.dust:
        raise Conflict(why=f"{amount} is below what the network relays ({rule.dust})")
    order = sorted(coins, key=lambda coin: (coin.confirmations == 0, -coin.amount, coin.id))
    taken: list[Deposit] = []
    for coin in order:
        taken.append(coin)
        have = sum(each.amount for each in taken)
        fee = fee_for(len(taken), 2, kind, rate, rule)
        if have >= amount + fee + rule.dust:
            return Spending(tuple(taken), fee, have - amount - fee)
        if have >= amount + fee_for(len(taken), 1, kind, rate, rule):
            return Spending(tuple(taken), have - amount, 0)
    have = sum(coin.amount for coin in coins)
    raise Conflict(why=f"{have} is not enough to pay {amount} and the fee")


def signed(
    spending: Spending,
    outputs: Sequence[tuple[bytes, int]],
    kind: Script,
    key_of: Callable[[Deposit], HDKey],
) -> bytes:
    tx = Transaction(
        vin=[
            TransactionInput(bytes.fromhex(coin.txid), int(coin.output), sequence=_REPLACEABLE)
            for coin in spending.inputs
        ],
        vout=[TransactionOutput(amount, RawScript(script)) for script, amount in outputs],
    )
    for place, coin in enumerate(spending.inputs):
        _sign(tx, place, coin, kind, key_of(coin))
    return bytes(tx.serialize())


def _sign(tx: Transaction, place: int, coin: Deposit, kind: Script, key: HDKey) -> None:
    public = key.get_public_key()
    hashed = RawScript(b"\x76\xa9\x14" + _hash160(public.sec()) + b"\x88\xac")
    if kind is Script.P2PKH:
        digest = tx.sighash_legacy(place, hashed)
        tx.vin[place].script_sig = script_sig_p2pkh(key.sign(digest), public)
        return
    digest = tx.sighash_segwit(place, hashed, coin.amount, SIGHASH.ALL)
    tx.vin[place].witness = Witness(witness_p2wpkh(key.sign(digest), public).items)
    if kind is Script.P2SH_P2WPKH:
        program = b"\x00\x14" + _hash160(public.sec())
        tx.vin[place].script_sig = RawScript(bytes([len(program)]) + program)


def _hash160(data: bytes) -> bytes:
    return bytes(hash160(data))


def txid_of(raw: bytes) -> str:
    return str(Transaction.parse(raw).txid().hex())

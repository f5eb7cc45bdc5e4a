"""Keys, addresses and transactions of the Bitcoin family (BTC, LTC, DOGE).

Each invoice gets a fresh address from the operator's extended public key, so the server never holds what
spends. The key is that of an account (`m/84h/0h/0h` and the like); addresses are its receive branch,
`0/index`.

Signatures are deterministic: the same order over the same outputs is the same transaction, so sending it
again after a lost answer cannot pay twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from embit import base58
from embit.bip32 import HDKey
from embit.hashes import hash160
from embit.script import Script as RawScript
from embit.script import Witness, script_sig_p2pkh, witness_p2wpkh
from embit.transaction import SIGHASH, Transaction, TransactionInput, TransactionOutput

from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.payments.chains.addresses import Network, address_of
from sandboxer.payments.chains.contract import Deposit

_SERIALIZED = 78
_PRIVATE_MARK = 0x00
_XPUB = b"\x04\x88\xb2\x1e"
MAX_INDEX = 2**31 - 1


class Script(StrEnum):
    P2PKH = "p2pkh"
    P2SH_P2WPKH = "p2sh-p2wpkh"
    P2WPKH = "p2wpkh"


# SLIP-132: the version bytes of an extended key say what its addresses look like. The rest (xpub, Ltub, dgub,
# tpub) say nothing, and the coin's present custom is taken.
_SCRIPT_OF_VERSION: Mapping[bytes, Script] = MappingProxyType(
    {
        bytes.fromhex("049d7cb2"): Script.P2SH_P2WPKH,  # ypub
        bytes.fromhex("044a5262"): Script.P2SH_P2WPKH,  # upub
        bytes.fromhex("01b26ef6"): Script.P2SH_P2WPKH,  # Mtub
        bytes.fromhex("04b24746"): Script.P2WPKH,  # zpub
        bytes.fromhex("045f1cf6"): Script.P2WPKH,  # vpub
    }
)


@dataclass(frozen=True)
class AccountKey:
    """An account's extended public key, on one network, with the kind of address it makes."""

    key: HDKey
    network: Network
    script: Script

    def output_script(self, index: int, *, branch: int = 0) -> bytes:
        if not 0 <= index <= MAX_INDEX:
            raise InvalidRequest(field="index", why=f"{index} is not between 0 and {MAX_INDEX}")
        return output_script(self.key.derive([branch, index]).sec(), self.script)

    def address(self, index: int, *, branch: int = 0) -> str:
        address = address_of(self.output_script(index, branch=branch), self.network)
        assert address is not None, "every kind of script here has an address"
        return address


def read_account_key(text: str, network: Network, script: Script | None = None) -> AccountKey:
    """Reads xpub, ypub, zpub, Ltub, Mtub, dgub, tpub, upub, vpub; refuses private keys and nonsense."""
    try:
        raw: bytes = base58.decode_check(text.strip())
    except (ValueError, KeyError):
        raise InvalidRequest(field="xpub", why="not an extended key (its checksum is wrong)") from None
    if len(raw) != _SERIALIZED:
        raise InvalidRequest(field="xpub", why="not an extended key (its length is wrong)")
    if raw[45] == _PRIVATE_MARK:
        raise InvalidRequest(
            field="xpub", why="this key can spend; give the server the public one (xpub, ypub, zpub)"
        )
    custom = Script.P2PKH if network.hrp is None else Script.P2WPKH
    kind = script or _SCRIPT_OF_VERSION.get(raw[:4]) or custom
    if kind is not Script.P2PKH and network.hrp is None:
        raise InvalidRequest(field="xpub", why=f"{network.coin} has no witness programs")
    try:
        # The library knows Bitcoin's version bytes only; they matter no more from here on.
        key = HDKey.parse(_XPUB + raw[4:])
    except ValueError:
        raise InvalidRequest(field="xpub", why="not an extended key (no point on the curve)") from None
    return AccountKey(key, network, kind)


def output_script(public_key: bytes, kind: Script) -> bytes:
    hashed = bytes(hash160(public_key))
    if kind is Script.P2PKH:
        return b"\x76\xa9\x14" + hashed + b"\x88\xac"
    witness = b"\x00\x14" + hashed
    return witness if kind is Script.P2WPKH else b"\xa9\x14" + bytes(hash160(witness)) + b"\x87"


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

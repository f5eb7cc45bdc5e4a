"""What the origin and the sponsor sign, and who they turn out to be.

The origin signs without knowing the sponsor; the sponsor signs what the origin signed. So the sponsor can
add its name, fee and nonce, and can change nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coincurve import PrivateKey

from sandboxer.identity.signatures.recovery import recover
from sandboxer.payments.stacks.codec.cursor import malformed
from sandboxer.payments.stacks.codec.spending import (
    NOBODY,
    HashMode,
    KeyEncoding,
    SpendingCondition,
    signer_of,
)
from sandboxer.payments.stacks.codec.transactions import Transaction, sha512_256, write_transaction

_ORIGIN_FLAG, _SPONSOR_FLAG = b"\x04", b"\x05"


@dataclass(frozen=True, slots=True)
class StacksKey:
    """A single signer's key; its address is P2PKH of the compressed key unless told otherwise."""

    secret: PrivateKey
    mode: HashMode = HashMode.P2PKH

    def __repr__(self) -> str:
        return "StacksKey(…)"

    @classmethod
    def from_hex(cls, text: str, mode: HashMode = HashMode.P2PKH) -> StacksKey:
        """32 bytes; wallets append 01 for "compressed", which is the only way here."""
        try:
            raw = bytes.fromhex(text.removeprefix("0x"))
            return cls(PrivateKey(raw[:32] if len(raw) == 33 and raw[32] == 1 else raw), mode)
        except ValueError:
            raise malformed("a key is 32 bytes in hex", "bad_key") from None

    def condition(self, *, nonce: int, fee: int) -> SpendingCondition:
        return SpendingCondition(self.mode, self._signer, nonce, fee)

    def address(self, *, mainnet: bool) -> str:
        return self.condition(nonce=0, fee=0).address(mainnet=mainnet).text

    @property
    def _signer(self) -> bytes:
        return signer_of(self.secret.public_key, self.mode, KeyEncoding.COMPRESSED)


def sign_origin(transaction: Transaction, key: StacksKey) -> Transaction:
    digest = _to_sign(_initial(transaction), _ORIGIN_FLAG, transaction.origin)
    return replace(transaction, origin=replace(transaction.origin, signature=_signature(key, digest)))


def sign_sponsor(transaction: Transaction, key: StacksKey, *, nonce: int, fee: int) -> Transaction:
    """The origin's signature is checked first: nobody sponsors what nobody signed."""
    if transaction.sponsor is None:
        raise malformed("it was not made to be sponsored", "not_sponsored")
    sponsor = key.condition(nonce=nonce, fee=fee)
    digest = _to_sign(verify_origin(transaction), _SPONSOR_FLAG, sponsor)
    return replace(transaction, sponsor=replace(sponsor, signature=_signature(key, digest)))


def verify_origin(transaction: Transaction) -> bytes:
    """Raises unless the named origin signed; gives what a sponsor has to sign on."""
    return _verify(_initial(transaction), _ORIGIN_FLAG, transaction.origin, "origin")


def verify_sponsor(transaction: Transaction) -> None:
    if transaction.sponsor is None:
        raise malformed("it was not made to be sponsored", "not_sponsored")
    _verify(verify_origin(transaction), _SPONSOR_FLAG, transaction.sponsor, "sponsor")


def _initial(transaction: Transaction) -> bytes:
    cleared = replace(
        transaction,
        origin=transaction.origin.cleared(),
        sponsor=None if transaction.sponsor is None else NOBODY,
    )
    return sha512_256(write_transaction(cleared))


def _to_sign(so_far: bytes, flag: bytes, condition: SpendingCondition) -> bytes:
    numbers = condition.fee.to_bytes(8, "big") + condition.nonce.to_bytes(8, "big")
    return sha512_256(so_far + flag + numbers)


def _signature(key: StacksKey, digest: bytes) -> bytes:
    """v r s; the curve's library gives the smaller s."""
    rsv = key.secret.sign_recoverable(digest, hasher=None)
    return rsv[64:] + rsv[:64]


def _verify(so_far: bytes, flag: bytes, condition: SpendingCondition, who: str) -> bytes:
    digest = _to_sign(so_far, flag, condition)
    key = recover(digest, condition.signature[1:], condition.signature[0])
    if key is None or signer_of(key, condition.mode, condition.encoding) != condition.signer:
        raise malformed(f"the {who} did not sign it", "signature_validation_failed")
    return sha512_256(digest + bytes([condition.encoding]) + condition.signature)

"""A Stacks transaction: parsed whole or refused, and written back to the same bytes.

Who pays and who signed: the spending conditions of a transaction, of its origin and of a sponsor.

What the origin and the sponsor sign, and who they turn out to be.

The origin signs without knowing the sponsor; the sponsor signs what the origin signed. So the sponsor can
add its name, fee and nonce, and can change nothing else.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import IntEnum

from coincurve import PrivateKey, PublicKey
from Cryptodome.Hash import SHA512

from sandboxer.identity.signatures.bitcoin import hash160, recover
from sandboxer.identity.signatures.stacks import (
    MAINNET_MULTI,
    MAINNET_SINGLE,
    TESTNET_MULTI,
    TESTNET_SINGLE,
    ContractPrincipal,
    StacksAddress,
    Value,
    serialize,
)
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.stacks.clarity import (
    CLARITY_NAME,
    CONTRACT_NAME,
    SMALLEST,
    Cursor,
    Mode,
    PostCondition,
    counted_name,
    malformed,
    raw_address,
    read_post_condition,
    read_value,
    write_post_condition,
)

# A transfer has some 350 bytes; a chain would take two megabytes, which no payment needs.
MAX_BYTES = 64 * 1024
MEMO_BYTES = 34
MAINNET_VERSION, TESTNET_VERSION = 0x00, 0x80
_HEX = re.compile(r"(0x)?((?:[0-9a-fA-F]{2})+)")
_STANDARD, _SPONSORED = 4, 5
_U64 = 2**64
SIGNATURE_BYTES = 65
NO_SIGNATURE = bytes(SIGNATURE_BYTES)
_MULTISIG = frozenset({1, 3, 5, 7})
_ORIGIN_FLAG = b"\x04"


class Anchor(IntEnum):
    ON_CHAIN = 1
    OFF_CHAIN = 2
    ANY = 3


@brief_value_class
class TokenTransfer:
    """Native STX."""

    recipient: StacksAddress | ContractPrincipal
    amount: int
    memo: bytes = bytes(MEMO_BYTES)


@brief_value_class
class ContractCall:
    contract: ContractPrincipal
    function: str
    arguments: tuple[Value, ...]


Payload = TokenTransfer | ContractCall


@value_class
class Transaction:
    version: int
    chain_id: int
    origin: SpendingCondition
    sponsor: SpendingCondition | None
    mode: Mode
    post_conditions: tuple[PostCondition, ...]
    payload: Payload
    anchor: Anchor = Anchor.ANY

    @property
    def mainnet(self) -> bool:
        return self.version == MAINNET_VERSION

    @property
    def origin_address(self) -> str:
        return self.origin.address(mainnet=self.mainnet).text

    @property
    def txid(self) -> str:
        """Changes when a sponsor signs: never the identity of a payment that waits for one."""
        return sha512_256(write_transaction(self)).hex()


class HashMode(IntEnum):
    P2PKH = 0
    P2WPKH = 2


class KeyEncoding(IntEnum):
    COMPRESSED = 0
    UNCOMPRESSED = 1


@brief_value_class
class SpendingCondition:
    mode: HashMode
    signer: bytes
    nonce: int
    fee: int
    encoding: KeyEncoding = KeyEncoding.COMPRESSED
    # v, r, s: the other way round than most wallets' messages.
    signature: bytes = NO_SIGNATURE

    @property
    def signed(self) -> bool:
        return self.signature != NO_SIGNATURE

    def cleared(self) -> SpendingCondition:
        return replace(self, nonce=0, fee=0, signature=NO_SIGNATURE)

    def address(self, *, mainnet: bool) -> StacksAddress:
        single = self.mode is HashMode.P2PKH
        if mainnet:
            return StacksAddress(MAINNET_SINGLE if single else MAINNET_MULTI, self.signer)
        return StacksAddress(TESTNET_SINGLE if single else TESTNET_MULTI, self.signer)


# The sponsor's place in what the origin signs: nobody.
NOBODY = SpendingCondition(HashMode.P2PKH, bytes(20), 0, 0)
# What wallets put there until a sponsor comes: the hash of a public key of zeros.
UNSPONSORED = SpendingCondition(HashMode.P2PKH, hash160(bytes(33)), 0, 0)


def sha512_256(data: bytes) -> bytes:
    return SHA512.new(data, truncate="256").digest()


def parse_hex(text: str) -> Transaction:
    if len(text) > 2 * MAX_BYTES + 2 or (found := _HEX.fullmatch(text)) is None:
        raise malformed("it is not hex, or too long")
    return parse_transaction(bytes.fromhex(found[2]))


def parse_transaction(raw: bytes) -> Transaction:
    """Raises InvalidRequest for everything but one whole transfer or contract call."""
    if len(raw) > MAX_BYTES:
        raise malformed("it is too long")
    cursor = Cursor(raw)
    version = cursor.one_of(frozenset({MAINNET_VERSION, TESTNET_VERSION}), "transaction version")
    chain_id = cursor.number(4)
    auth = cursor.one_of(frozenset({_STANDARD, _SPONSORED}), "authorization type")
    transaction = Transaction(
        version=version,
        chain_id=chain_id,
        origin=read_condition(cursor),
        sponsor=read_condition(cursor) if auth == _SPONSORED else None,
        anchor=Anchor(cursor.one_of(frozenset(Anchor), "anchor mode")),
        mode=Mode(cursor.one_of(frozenset(Mode), "post-condition mode")),
        post_conditions=tuple(
            read_post_condition(cursor)
            for _ in range(cursor.count(smallest=SMALLEST, what="post-conditions"))
        ),
        payload=_read_payload(cursor),
    )
    cursor.end()
    return transaction


def write_transaction(transaction: Transaction) -> bytes:
    conditions = transaction.post_conditions
    sponsor = transaction.sponsor
    return b"".join(
        (
            bytes([transaction.version]),
            transaction.chain_id.to_bytes(4, "big"),
            bytes([_STANDARD if sponsor is None else _SPONSORED]),
            write_condition(transaction.origin),
            b"" if sponsor is None else write_condition(sponsor),
            bytes([transaction.anchor, transaction.mode]),
            len(conditions).to_bytes(4, "big"),
            *(write_post_condition(condition) for condition in conditions),
            _write_payload(transaction.payload),
        )
    )


def _read_payload(cursor: Cursor) -> Payload:
    match kind := cursor.number(1):
        case 0:
            recipient = read_value(cursor)
            if not isinstance(recipient, StacksAddress | ContractPrincipal):
                raise malformed("the recipient is not a principal")
            return TokenTransfer(recipient, cursor.number(8), cursor.take(MEMO_BYTES))
        case 2:
            contract = ContractPrincipal(cursor.address(), cursor.name(CONTRACT_NAME))
            function = cursor.name(CLARITY_NAME)
            count = cursor.count(smallest=1, what="arguments")
            return ContractCall(contract, function, tuple(read_value(cursor) for _ in range(count)))
    raise malformed(f"payload type {kind} is neither a transfer nor a contract call", "unsupported_payload")


def _write_payload(payload: Payload) -> bytes:
    match payload:
        case TokenTransfer(recipient=recipient, amount=amount, memo=memo):
            if not (0 <= amount < _U64 and len(memo) == MEMO_BYTES):
                raise malformed("an amount has 64 bits and a memo 34 bytes")
            return b"\x00" + serialize(recipient) + amount.to_bytes(8, "big") + memo
        case ContractCall(contract=contract, function=function, arguments=arguments):
            where = raw_address(contract.address) + counted_name(contract.name) + counted_name(function)
            values = b"".join(serialize(argument) for argument in arguments)
            return b"\x02" + where + len(arguments).to_bytes(4, "big") + values


def read_condition(cursor: Cursor) -> SpendingCondition:
    if (mode := cursor.number(1)) in _MULTISIG:
        raise malformed("several signers are not supported: pay from a single-signer address", "multisig")
    if mode not in (0, 2):
        raise malformed(f"hash mode {mode} is not known")
    signer, nonce, fee = cursor.take(20), cursor.number(8), cursor.number(8)
    encoding = KeyEncoding(cursor.one_of(frozenset(KeyEncoding), "key encoding"))
    if mode == HashMode.P2WPKH and encoding is not KeyEncoding.COMPRESSED:
        raise malformed("a segwit signer needs a compressed key")
    return SpendingCondition(HashMode(mode), signer, nonce, fee, encoding, cursor.take(SIGNATURE_BYTES))


def write_condition(condition: SpendingCondition) -> bytes:
    numbers = condition.nonce.to_bytes(8, "big") + condition.fee.to_bytes(8, "big")
    head = bytes([condition.mode]) + condition.signer + numbers
    return head + bytes([condition.encoding]) + condition.signature


def signer_of(key: PublicKey, mode: HashMode, encoding: KeyEncoding) -> bytes:
    """The hash that a condition names for this key."""
    key_hash = hash160(key.format(compressed=encoding is KeyEncoding.COMPRESSED))
    return key_hash if mode is HashMode.P2PKH else hash160(b"\x00\x14" + key_hash)


@brief_value_class
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
        signer = signer_of(self.secret.public_key, self.mode, KeyEncoding.COMPRESSED)
        return SpendingCondition(self.mode, signer, nonce, fee)

    def address(self, *, mainnet: bool) -> str:
        return self.condition(nonce=0, fee=0).address(mainnet=mainnet).text


def sign_origin(transaction: Transaction, key: StacksKey) -> Transaction:
    digest = digest_to_sign(_initial(transaction), _ORIGIN_FLAG, transaction.origin)
    return replace(transaction, origin=replace(transaction.origin, signature=sign_digest(key, digest)))


def verify_origin(transaction: Transaction) -> bytes:
    """Raises unless the named origin signed; gives what a sponsor has to sign on."""
    return verify_condition(_initial(transaction), _ORIGIN_FLAG, transaction.origin, "origin")


def _initial(transaction: Transaction) -> bytes:
    cleared = replace(
        transaction,
        origin=transaction.origin.cleared(),
        sponsor=None if transaction.sponsor is None else NOBODY,
    )
    return sha512_256(write_transaction(cleared))


def digest_to_sign(so_far: bytes, flag: bytes, condition: SpendingCondition) -> bytes:
    numbers = condition.fee.to_bytes(8, "big") + condition.nonce.to_bytes(8, "big")
    return sha512_256(so_far + flag + numbers)


def sign_digest(key: StacksKey, digest: bytes) -> bytes:
    """v r s; the curve's library gives the smaller s."""
    rsv = key.secret.sign_recoverable(digest, hasher=None)
    return rsv[64:] + rsv[:64]


def verify_condition(so_far: bytes, flag: bytes, condition: SpendingCondition, who: str) -> bytes:
    digest = digest_to_sign(so_far, flag, condition)
    key = recover(digest, condition.signature[1:], condition.signature[0])
    if key is None or signer_of(key, condition.mode, condition.encoding) != condition.signer:
        raise malformed(f"the {who} did not sign it", "signature_validation_failed")
    return sha512_256(digest + bytes([condition.encoding]) + condition.signature)

"""The two EVM schemes: how a payment is read, and who checks and settles it.

`exact` is an EIP-3009 authorization, `upto` a Permit2 one. They are settled in this process with the
operator's own key, off the event loop, or by a hosted facilitator. The setting `facilitator_auth` of a
network names a file with the secret that a hosted one wants to see, never the secret itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eth_account.messages import encode_typed_data
from eth_utils.crypto import keccak
from x402 import x402FacilitatorSync
from x402.http.facilitator_client_base import AuthHeaders, AuthProvider
from x402.mechanisms.evm.constants import PERMIT2_ADDRESS, UPTO_PERMIT2_WITNESS_TYPES
from x402.mechanisms.evm.eip712 import hash_eip3009_authorization
from x402.mechanisms.evm.exact.facilitator import ExactEvmScheme
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.mechanisms.evm.types import ExactEIP3009Payload, UptoPermit2Payload
from x402.mechanisms.evm.upto.facilitator import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from sandboxer.identity.signatures.bitcoin import RS_BYTES, recover
from sandboxer.identity.signatures.wallets import evm_address
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.x402.presented import whole_number, wrong_payment
from sandboxer.payments.x402.ways import Authorization, read_secret

PERMIT2 = "permit2:"
_NONCE = re.compile(r"0x[0-9a-fA-F]{64}")
_SIGNATURE_BYTES = 65
# Far enough for any authorization, and still a date.
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class ExactReader:
    """EIP-3009: the token itself remembers the nonce, so one authorization moves money once."""

    def read(self, payload: PaymentPayload) -> Authorization:
        given = _part(payload.payload, "authorization")
        nonce = given.get("nonce")
        if not isinstance(nonce, str) or _NONCE.fullmatch(nonce) is None:
            raise wrong_payment("authorization.nonce has 32 bytes in hex")
        return Authorization(
            payer=_address(given.get("from")),
            nonce=nonce.lower(),
            amount=whole_number(given.get("value"), "authorization.value"),
            valid_until=_moment(whole_number(given.get("validBefore"), "authorization.validBefore")),
        )

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """By a key of the payer's own. A contract's signature is known to the chain only: False."""
        try:
            found = ExactEIP3009Payload.from_dict(payload.payload)
            digest = hash_eip3009_authorization(
                found.authorization,
                int(requirements.network.partition(":")[2]),
                requirements.asset,
                str(requirements.extra.get("name")),
                str(requirements.extra.get("version")),
            )
            signature = bytes.fromhex((found.signature or "").removeprefix("0x"))
        except (ValueError, KeyError, TypeError):
            return False
        return _signer(digest, signature) == found.authorization.from_address.lower()

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        return self.is_signed(payload, requirements)


class UptoReader:
    """Permit2: its contract remembers the nonce, an unordered one of the payer's choice."""

    def read(self, payload: PaymentPayload) -> Authorization:
        given = _part(payload.payload, "permit2Authorization")
        permitted = _part(given, "permitted")
        nonce = whole_number(given.get("nonce"), "permit2Authorization.nonce")
        return Authorization(
            payer=_address(given.get("from")),
            nonce=f"{PERMIT2}{nonce}",
            amount=whole_number(permitted.get("amount"), "permitted.amount"),
            valid_until=_moment(whole_number(given.get("deadline"), "permit2Authorization.deadline")),
        )

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Left to the facilitator: False."""
        return False

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        try:
            found = UptoPermit2Payload.from_dict(payload.payload)
            signed = found.permit2_authorization
            message = {
                "permitted": {"token": signed.permitted.token, "amount": int(signed.permitted.amount)},
                "spender": signed.spender,
                "nonce": int(signed.nonce),
                "deadline": int(signed.deadline),
                "witness": {
                    "to": signed.witness.to,
                    "facilitator": signed.witness.facilitator,
                    "validAfter": int(signed.witness.valid_after),
                },
            }
            chain = int(requirements.network.partition(":")[2])
            domain = {"name": "Permit2", "chainId": chain, "verifyingContract": PERMIT2_ADDRESS}
            types = {name: list(fields) for name, fields in UPTO_PERMIT2_WITNESS_TYPES.items()}
            signable = encode_typed_data(domain, types, message)
            digest = keccak(b"\x19" + signable.version + signable.header + signable.body)
            signature = bytes.fromhex((found.signature or "").removeprefix("0x"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return _signer(digest, signature) == signed.from_address.lower()


def _signer(digest: bytes, signature: bytes) -> str | None:
    """The address of the key that signed; None: no key did."""
    if len(signature) != _SIGNATURE_BYTES:
        return None
    key = recover(
        digest, signature[:RS_BYTES], (signature[64] - 27) if signature[64] >= 27 else signature[64]
    )
    return None if key is None else "0x" + keccak(key.format(compressed=False)[1:])[-20:].hex()


def _part(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = given.get(name)
    if not isinstance(part, Mapping):
        raise wrong_payment(f"it has no {name}")
    return part


def _address(text: object) -> str:
    if not isinstance(text, str):
        raise wrong_payment("the payer is an address")
    return evm_address(text).lower()


def _moment(seconds: int) -> datetime:
    return _LATEST if seconds >= _LATEST.timestamp() else datetime.fromtimestamp(seconds, UTC)


# Threads that may wait for a chain at once.
AT_ONCE = 32
_FIELDS = frozenset({"bearer_file", "cdp_key_id", "cdp_secret_file"})
# How long a signed token is good; clocks differ.
_GOOD_FOR_S = 120
_SEED_BYTES = 32


class Signer(FacilitatorWeb3Signer):
    """The package's signer, one transaction after the other: it reserves account nonces ahead, and one that
    is reserved and never sent would hold up all that follow."""

    def __init__(self, private_key: str, rpc_url: str, confirmation_timeout_seconds: float) -> None:
        super().__init__(private_key, rpc_url, confirmation_timeout_seconds)
        # Protects the choice of the account's nonce until the node has the transaction.
        self._sending = threading.Lock()

    def write_contract(
        self, address: str, abi: list[dict[str, Any]], function_name: str, *args: Any, **options: Any
    ) -> str:
        with self._sending:
            self._next_nonce = None
            return super().write_contract(address, abi, function_name, *args, **options)


class InProcess:
    """A facilitator of our own. Its methods block on the node, so they run in threads."""

    def __init__(self, signer: Signer, network: str) -> None:
        self._facilitator = x402FacilitatorSync()
        self._facilitator.register([network], ExactEvmScheme(signer))
        self._facilitator.register([network], UptoEvmScheme(signer))
        self.address: str = signer.address
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse:
        async with self._turns:
            return await asyncio.to_thread(self._facilitator.verify, payload, requirements)

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse:
        async with self._turns:
            return await asyncio.to_thread(self._facilitator.settle, payload, requirements)


class Bearer:
    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"}

    def get_auth_headers(self) -> AuthHeaders:
        mine = self._headers
        return AuthHeaders(verify=mine, settle=mine, supported=mine, bazaar=mine)


class CdpKey:
    """Coinbase's form: a JWT for each request, signed by an Ed25519 key, that names method, host and path."""

    def __init__(self, key_id: str, secret: bytes, url: str) -> None:
        self._key_id = key_id
        self._key = Ed25519PrivateKey.from_private_bytes(secret[:_SEED_BYTES])
        self._url = urlsplit(url.rstrip("/"))

    def get_auth_headers(self) -> AuthHeaders:
        return AuthHeaders(
            verify=self._header("POST", "/verify"),
            settle=self._header("POST", "/settle"),
            supported=self._header("GET", "/supported"),
            bazaar=self._header("GET", "/discovery/resources"),
        )

    def _header(self, method: str, path: str) -> dict[str, str]:
        now = int(time.time())
        head = {"alg": "EdDSA", "typ": "JWT", "kid": self._key_id, "nonce": secrets.token_hex(16)}
        claims = {
            "sub": self._key_id,
            "iss": "cdp",
            "nbf": now,
            "exp": now + _GOOD_FOR_S,
            "uris": [f"{method} {self._url.netloc}{self._url.path}{path}"],
        }
        signed = f"{_token_part(head)}.{_token_part(claims)}"
        signature = base64.urlsafe_b64encode(self._key.sign(signed.encode())).rstrip(b"=").decode()
        return {"Authorization": f"Bearer {signed}.{signature}"}


def read_credentials(given: Mapping[str, Any], url: str) -> AuthProvider | None:
    """None where nothing is given. Raises InvalidRequest naming what is wrong."""
    if not given:
        return None
    if unknown := sorted(set(given) - _FIELDS):
        raise _wrong_auth(f"unknown {unknown[0]}; known are {', '.join(sorted(_FIELDS))}")
    if set(given) == {"bearer_file"}:
        return Bearer(_secret(given["bearer_file"]))
    if set(given) != {"cdp_key_id", "cdp_secret_file"}:
        raise _wrong_auth("give bearer_file, or cdp_key_id and cdp_secret_file")
    try:
        secret = base64.b64decode(_secret(given["cdp_secret_file"]), validate=True)
        return CdpKey(str(given["cdp_key_id"]), secret, url)
    except ValueError:
        raise _wrong_auth("cdp_secret_file holds an Ed25519 secret in base 64") from None


def _secret(given: object) -> str:
    path = Path(str(given))
    if not (text := read_secret(path, "facilitator_auth")) or not text.isprintable():
        raise _wrong_auth(f"{path} holds no secret of one line")
    return text


def _token_part(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _wrong_auth(why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"facilitator_auth: {why}")

"""Settling by ourselves: the package's facilitator with the operator's own key, off the event loop.

What a hosted facilitator wants to see before it settles: a bearer token, or a signed one (Coinbase CDP).

The setting `facilitator_auth` of a network names a file with the secret, never the secret itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from x402 import x402FacilitatorSync
from x402.http.facilitator_client_base import AuthHeaders, AuthProvider
from x402.mechanisms.evm.exact.facilitator import ExactEvmScheme
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.mechanisms.evm.upto.facilitator import UptoEvmScheme
from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse

from sandboxer.kernel.errors import InvalidRequest

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
        signed = f"{_part(head)}.{_part(claims)}"
        signature = base64.urlsafe_b64encode(self._key.sign(signed.encode())).rstrip(b"=").decode()
        return {"Authorization": f"Bearer {signed}.{signature}"}


def read_credentials(given: Mapping[str, Any], url: str) -> AuthProvider | None:
    """None where nothing is given. Raises InvalidRequest naming what is wrong."""
    if not given:
        return None
    if unknown := sorted(set(given) - _FIELDS):
        raise _wrong(f"unknown {unknown[0]}; known are {', '.join(sorted(_FIELDS))}")
    if set(given) == {"bearer_file"}:
        return Bearer(_secret(given["bearer_file"]))
    if set(given) != {"cdp_key_id", "cdp_secret_file"}:
        raise _wrong("give bearer_file, or cdp_key_id and cdp_secret_file")
    try:
        secret = base64.b64decode(_secret(given["cdp_secret_file"]), validate=True)
        return CdpKey(str(given["cdp_key_id"]), secret, url)
    except ValueError:
        raise _wrong("cdp_secret_file holds an Ed25519 secret in base 64") from None


def _secret(given: object) -> str:
    path = Path(str(given))
    try:
        mode, text = path.stat().st_mode, path.read_text("ascii").strip()
    except (OSError, ValueError):
        raise _wrong(f"{path} cannot be read") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _wrong(f"others may read {path}; chmod 600 it")
    if not text or not text.isprintable():
        raise _wrong(f"{path} holds no secret of one line")
    return text


def _part(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="x402", why=f"facilitator_auth: {why}")

"""Signatures as of Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64>`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping

from sandboxer.kernel.errors import InvalidRequest

PREFIX = "whsec_"
SECRET_BYTES = 32
SHORTEST, LONGEST = 24, 64


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes of `whsec_<base64>`. Raises InvalidRequest."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SHORTEST <= len(key) <= LONGEST:
        raise InvalidRequest(field="secret", why=f"it must be {PREFIX} and base64 of 24 to 64 bytes")
    return key


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    signed = f"{message}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def headers_of(message: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> Mapping[str, str]:
    """One signature for each secret in force, so that a receiver may change over at leisure."""
    told = {"webhook-id": message, "webhook-timestamp": str(timestamp)}
    signatures = [signature(secret, message, timestamp, body) for secret in secrets]
    return {**told, "webhook-signature": " ".join(signatures)} if signatures else told

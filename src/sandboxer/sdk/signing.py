"""Signature v2 as our clients use it: the few lines an SDK in any language has to repeat.

    v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}

HMAC-SHA256 under the secret key, lower-case hex. Everything is decided before the first body byte is sent, so
the server can refuse a stranger without reading what he brings.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls, and where."""

    public_key: str
    secret_key: str = field(repr=False)
    url: str = "http://127.0.0.1:7777"


def new_nonce() -> str:
    """24 characters of `[A-Za-z0-9_-]`; works once."""
    return secrets.token_urlsafe(18)


def canonical_v2(timestamp: int, nonce: str, method: str, target: str, content_sha256: str) -> str:
    return f"v2:{timestamp}:{nonce}:{method}:{target}:{content_sha256}"


def signed_headers(
    credentials: Credentials,
    method: str,
    target: str,
    content_sha256: str,
    *,
    timestamp: int,
    nonce: str,
) -> Mapping[str, str]:
    """The five headers of a signed request. `target` is the path with its query, byte for byte as sent."""
    canonical = canonical_v2(timestamp, nonce, method, target, content_sha256)
    signature = hmac.new(credentials.secret_key.encode(), canonical.encode(), hashlib.sha256).hexdigest()
    return {
        "authorization": f"Bearer {credentials.public_key}",
        "x-timestamp": str(timestamp),
        "x-nonce": nonce,
        "x-content-sha256": content_sha256,
        "x-signature": signature,
    }

"""Who a client is, how it signs, and whom it believes.

Where a client finds its key: arguments, then the environment, then an `owner.json`.

    SANDBOXER_URL          address of the platform; without it that in an owner.json, where one can be read
    SANDBOXER_PUBLIC_KEY   with SANDBOXER_SECRET_KEY: the key to sign with
    SANDBOXER_CREDENTIALS  path of an owner.json
    SANDBOXER_STATE_DIR    the server's state folder, whose owner.json is taken (default /var/lib/sandboxer)

A client is not the server and must not need its settings, so it reads these few by itself.

Signature v2 as our clients use it: the few lines an SDK in any language has to repeat.

    v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}

HMAC-SHA256 under the secret key, lower-case hex. Everything is decided before the first body byte is sent, so
the server can refuse a stranger without reading what he brings.

Whose certificates a client believes: the system's and SSL_CERT_FILE's (an operator's own authority), and
those that come with Python packages, for systems that have none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import certifi

from sandboxer.sdk.errors import MissingCredentials

DEFAULT_URL = "http://127.0.0.1:7777"
DEFAULT_STATE_DIR = "/var/lib/sandboxer"
# The key of whoever has none: nothing is signed with it, since a wrong signature is refused everywhere.
NOBODY = "nobody"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls, and where."""

    public_key: str
    secret_key: str = field(repr=False)
    url: str = "http://127.0.0.1:7777"


def find_credentials(
    *,
    url: str | None = None,
    public_key: str | None = None,
    secret_key: str | None = None,
    owner_file: Path | str | None = None,
    is_optional: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Credentials:
    """The first complete key found. An explicit owner file beats the environment's key.

    `is_optional`: somebody with a wallet needs none, and must not borrow the owner's by chance.
    """
    env = os.environ if environ is None else environ
    url = url or env.get("SANDBOXER_URL")
    state_dir = Path(env.get("SANDBOXER_STATE_DIR") or DEFAULT_STATE_DIR)
    nearest = Path(env.get("SANDBOXER_CREDENTIALS") or state_dir / "owner.json")
    if public_key and secret_key:
        return Credentials(public_key, secret_key, url or _address_in(nearest))
    if owner_file is None:
        public_key, secret_key = env.get("SANDBOXER_PUBLIC_KEY"), env.get("SANDBOXER_SECRET_KEY")
        if public_key and secret_key:
            return Credentials(public_key, secret_key, url or _address_in(nearest))
        if is_optional:
            return Credentials("", "", url or _address_in(nearest))
    return _from_owner_file(Path(owner_file or nearest), url)


def _address_in(path: Path) -> str:
    """Who has a key of his own beside the server's state folder means that server, on whatever port."""
    try:
        return str(json.loads(path.read_text()).get("url") or DEFAULT_URL)
    except (OSError, ValueError, AttributeError):
        return DEFAULT_URL


def _from_owner_file(path: Path, url: str | None) -> Credentials:
    try:
        content = json.loads(path.read_text())
        address = url or str(content.get("url") or DEFAULT_URL)
        return Credentials(str(content["public_key"]), str(content["secret_key"]), address)
    except FileNotFoundError:
        raise MissingCredentials(f"No key was given, and {path} does not exist.") from None
    except PermissionError:
        raise MissingCredentials(
            f"No key was given, and {path} is not readable for this user.",
            next_step="Run as the user who started the platform, or ask its operator for a key of your own.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingCredentials(
            f"{path} is not an owner.json: {error}",
            next_step="Restore it from a backup, or name another file.",
        ) from None


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


def trust_for(url: str) -> ssl.SSLContext | bool:
    """For httpx's `verify`. Without TLS nothing is loaded, which saves a client some 20 ms."""
    if not url.startswith("https:"):
        return False
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context

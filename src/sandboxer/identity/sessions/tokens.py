"""Makes and reads the tokens of sessions (PASETO v4.local). Pure: key and time are given.

A token alone opens nothing: the session it names must also be known and not revoked.

The key of session tokens comes from the operator's secret or, in development, one kept sealed.

`session_token` reads from a request's head, strictly, whether it comes with a session instead of a signature.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Connection, insert, select

from sandboxer.identity.seal import Seal
from sandboxer.identity.tables import identity_secrets
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest, Unauthenticated
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.store.engine import Store

if TYPE_CHECKING:
    import pyseto
else:
    pyseto = late("pyseto")

HEADER = "v4.local."
_TOKEN = re.compile(r"v4\.local\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
LONGEST_TOKEN = 1024
SHORTEST_SECRET = 32
_SALT = b"sandboxer-paseto-v4"
_INFO = b"session-auth-symmetric-key-v1"
# Bound into every token, so that nothing else encrypted with the same key can pass for a session.
_ASSERTION = b"sandboxer-session-v1"
_NAME = "session-token-key"
_BEARER = b"bearer "
_OF_SIGNATURES = frozenset({b"x-signature", b"x-nonce", b"x-content-sha256", b"x-api-key"})


@value_class
class Claims:
    session_id: str
    address: str
    issued_at: datetime
    expires_at: datetime


@brief_value_class
class TokenKey:
    key: bytes = field(repr=False)

    @property
    def kid(self) -> str:
        """Returns a name of the key that gives nothing of it away."""
        return hmac.digest(self.key, b"kid", "sha256")[:8].hex()


def derive_key(secret: str) -> TokenKey:
    """Derives the key from the operator's SESSION_AUTH_SECRET."""
    if len(secret.encode()) < SHORTEST_SECRET:
        raise InvalidRequest(
            field="SESSION_AUTH_SECRET",
            why=f"it is shorter than {SHORTEST_SECRET} bytes",
            hint="Set it to the output of `openssl rand -hex 32`.",
        )
    return TokenKey(HKDF(SHA256(), 32, _SALT, _INFO).derive(secret.encode()))


class TokenKeys:
    """Makes new tokens with the first key; those of the others can still be read."""

    def __init__(self, keys: Iterable[TokenKey]) -> None:
        ordered = list(keys)
        self._newest = ordered[0]
        self._by_kid: Mapping[str, TokenKey] = {key.kid: key for key in ordered}

    def seal(self, claims: Claims) -> str:
        payload = {
            "jti": claims.session_id,
            "sub": claims.address,
            "iat": _text(claims.issued_at),
            "exp": _text(claims.expires_at),
        }
        token = pyseto.encode(
            _paseto_key(self._newest),
            json.dumps(payload).encode(),
            footer=json.dumps({"kid": self._newest.kid}).encode(),
            implicit_assertion=_ASSERTION,
        )
        return token.decode("ascii")

    def open(self, token: str, now: datetime) -> Claims:
        """Returns what the token says. Raises Unauthenticated if it is forged, cut, of another key, or
        expired.
        """
        if (claims := self._claims(token)) is None:
            raise bad_token()
        if claims.expires_at <= now:
            raise Unauthenticated(
                why="this session is over",
                reason="session_expired",
                expired_at=_text(claims.expires_at),
                hint="Sign in again: POST /v1/auth/session.",
            )
        return claims

    def _claims(self, token: str) -> Claims | None:
        if not _is_one_spelling(token):
            return None
        for key in self._by_kid.values():
            # The footer is not believed before the token opens: it could name any key.
            try:
                opened = pyseto.decode(_paseto_key(key), token, implicit_assertion=_ASSERTION)
            except (pyseto.PysetoError, ValueError):
                continue
            if opened.footer == json.dumps({"kid": key.kid}).encode():
                return _read(opened.payload)
        return None


def bad_token() -> Unauthenticated:
    return Unauthenticated(
        why="this is no session of this platform, or it was ended",
        reason="bad_session",
        hint="Sign in again: POST /v1/auth/session.",
    )


def fingerprint(token: str) -> bytes:
    """Returns what stands for a token in memory."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _is_one_spelling(token: str) -> bool:
    """Says whether a token is in its only spelling. The library reads base64 leniently; a token with two
    spellings could be revoked in one.
    """
    if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
        return False
    for part in token.split(".")[2:]:
        try:
            raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        except binascii.Error:
            return False
        if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
            return False
    return True


def _paseto_key(key: TokenKey) -> pyseto.KeyInterface:
    return pyseto.Key.new(version=4, purpose="local", key=key.key)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _read(payload: object) -> Claims | None:
    """Reads the claims of a token. Only we can have written it, but perhaps another version of us."""
    if not isinstance(payload, bytes):
        return None
    try:
        said = json.loads(payload)
        return Claims(
            session_id=str(said["jti"]),
            address=str(said["sub"]),
            issued_at=datetime.fromisoformat(said["iat"]),
            expires_at=datetime.fromisoformat(said["exp"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def require_session_secret(secret: str | None, *, production: bool) -> None:
    """Raises if a server in production has no secret. Call it before anything is opened."""
    if secret is not None:
        derive_key(secret)
    elif production:
        raise InvalidRequest(
            field="SESSION_AUTH_SECRET",
            why="production mode needs it: sessions must not hang on a key that only this machine has",
            hint="Set SESSION_AUTH_SECRET to the output of `openssl rand -hex 32`, and keep it.",
        )


async def load_token_keys(
    store: Store, seal: Seal, clock: Clock, *, secret: str | None, production: bool = False
) -> TokenKeys:
    """Returns the keys of tokens. Without a secret, a random key is made once and sealed under the master
    key, to outlive restarts.

    Tokens of that key still open after an operator has set a secret; they end by themselves within the hour.
    """
    require_session_secret(secret, production=production)
    kept = await _kept(store, seal, clock, make=secret is None)
    keys = [derive_key(secret)] if secret is not None else []
    return TokenKeys([*keys, *([TokenKey(kept)] if kept is not None and not production else [])])


async def _kept(store: Store, seal: Seal, clock: Clock, *, make: bool) -> bytes | None:
    fresh = secrets.token_bytes(32)

    def keep(conn: Connection) -> bytes | None:
        known = conn.execute(
            select(identity_secrets.c.sealed).where(identity_secrets.c.name == _NAME)
        ).scalar_one_or_none()
        if known is not None or not make:
            return None if known is None else bytes(known)
        sealed = seal.close(fresh, context=_NAME)
        conn.execute(insert(identity_secrets).values(name=_NAME, sealed=sealed, created_at=clock.now()))
        return sealed

    sealed = await store.write(keep)
    return None if sealed is None else seal.open(sealed, context=_NAME)


def session_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Returns the session token of a request; None if it is to be judged by something else."""
    return token_in(headers, HEADER)


def token_in(headers: Iterable[tuple[bytes, bytes]], prefix: str) -> str | None:
    """Returns the one bearer token of a request that begins like this, None if there is none."""
    tokens: list[str] = []
    is_signed = False
    count = 0
    for name, value in headers:
        is_signed = is_signed or name in _OF_SIGNATURES
        if name == b"authorization":
            count += 1
            if value[: len(_BEARER)].lower() == _BEARER:
                text = value[len(_BEARER) :].strip(b" ").decode("latin-1")
                tokens += [text] if text.startswith(prefix) else []
    if not tokens:
        return None
    if count > 1 or is_signed:
        # Two readers could believe two different callers.
        raise Unauthenticated(
            why="the request carries a token and something else that names a caller",
            reason="two_callers",
            hint="Send a token, or sign the request; not both.",
        )
    return tokens[0]

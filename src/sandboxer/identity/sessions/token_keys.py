"""Where the key of session tokens comes from: the operator's secret or, in development, one kept sealed."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, insert, select

from sandboxer.identity.seal import Seal
from sandboxer.identity.sessions.tokens import TokenKey, TokenKeys, derive_key
from sandboxer.identity.tables import identity_secrets
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.store.engine import Store

_NAME = "session-token-key"


def require_session_secret(secret: str | None, *, production: bool) -> None:
    """Call it before anything is opened: a server in production must not start without its secret."""
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
    """Without a secret: a random key, made once and sealed under the master key, to outlive restarts.

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

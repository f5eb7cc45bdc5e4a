"""A sandbox token stands for a bearer token at one sandbox, and nowhere else.

It is computed and not stored, from the sandbox, the key and the hash of its bearer token; so it ends with the
bearer token, and with its key.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import select

from sandboxer.identity.keys import Caller, Keys, keys
from sandboxer.kernel.errors import Unauthenticated
from sandboxer.store.engine import Store

_TOKEN = re.compile(r"sbt_([0-9a-hjkmnp-tv-z]{26})_[0-9a-f]{64}")
_KEY = "sbx-pk-"
# Said after a sandbox's id, it makes tokens that open less: what listens at ports of the sandbox.
TRAFFIC = "/traffic"
# Keys of one account that are tried for a request that shows what a token signed, instead of the token.
_MOST_SIGNERS = 1000


class SandboxTokens:
    def __init__(self, keys: Keys, store: Store, secret: bytes) -> None:
        self._keys = keys
        self._store = store
        self._secret = secret

    def of(self, caller: Caller, sandbox_id: str) -> str:
        """Returns the token that stands for the caller's bearer token at this sandbox."""
        said = f"{sandbox_id}:{caller.public_key}:{caller.bearer_hash}"
        mac = hmac.new(self._secret, said.encode(), "sha256").hexdigest()
        return f"sbt_{caller.public_key.removeprefix(_KEY)}_{mac}"

    async def authenticate(self, sandbox_id: str, token: str) -> Caller:
        """Raises Unauthenticated unless this is a token of this sandbox."""
        form = _TOKEN.fullmatch(token)
        key = None if form is None else await self._keys.find(_KEY + form[1])
        if (
            key is not None
            and key.caller.bearer_hash is not None
            and hmac.compare_digest(self.of(key.caller, sandbox_id), token)
        ):
            return replace(key.caller, came_by_bearer=True)
        raise _bad_token()

    async def signer(self, sandbox_id: str, account: str, is_signed: Callable[[str], bool]) -> Caller:
        """Returns whose token of this sandbox signed a request, among the keys of its account. Raises
        Unauthenticated.
        """
        query = (
            select(keys.c.public_key)
            .where(keys.c.account == account, keys.c.bearer_hash.is_not(None), keys.c.revoked_at.is_(None))
            .limit(_MOST_SIGNERS)
        )
        for public_key in await self._store.read(lambda conn: conn.execute(query).scalars().all()):
            key = await self._keys.find(public_key)
            if key is not None and is_signed(self.of(key.caller, sandbox_id)):
                return replace(key.caller, came_by_bearer=True)
        raise _bad_token()


def _bad_token() -> Unauthenticated:
    return Unauthenticated(
        why="this is no token of this sandbox, or it has ended",
        reason="bad_sandbox_token",
        hint="Connect to the sandbox again with the API key: the answer has a token.",
    )

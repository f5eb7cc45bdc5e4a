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
# Keys of an account whose tokens may have signed an address: it does not name the one that did. Each costs
# two hashes, also for whoever only guesses.
MOST_SIGNERS = 32


class SandboxTokens:
    def __init__(self, keys: Keys, store: Store, secret: bytes) -> None:
        self._keys = keys
        self._store = store
        self._secret = secret

    def of(self, caller: Caller, sandbox_id: str) -> str:
        """Returns the token that stands for the caller's bearer token at this sandbox."""
        return self._made_of(sandbox_id, caller.public_key, caller.bearer_hash)

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

    async def signer(
        self, sandbox_id: str, account: str, maker: str, is_signed: Callable[[str], bool]
    ) -> Caller:
        """Returns whose token of this sandbox signed a request: that of the key which made the sandbox, or of
        one of the newest keys of its account. Raises Unauthenticated.
        """
        query = (
            select(keys.c.public_key, keys.c.bearer_hash)
            .where(keys.c.account == account, keys.c.bearer_hash.is_not(None), keys.c.revoked_at.is_(None))
            .order_by(keys.c.public_key != maker, keys.c.created_at.desc())
            .limit(MOST_SIGNERS)
        )
        for public_key, bearer_hash in await self._store.read(lambda conn: conn.execute(query).all()):
            token = self._made_of(sandbox_id, public_key, bearer_hash)
            if is_signed(token):
                # Only it is looked up: whether it may sign now.
                return await self.authenticate(sandbox_id, token)
        raise _bad_token()

    def _made_of(self, sandbox_id: str, public_key: str, bearer_hash: str | None) -> str:
        said = f"{sandbox_id}:{public_key}:{bearer_hash}"
        mac = hmac.new(self._secret, said.encode(), "sha256").hexdigest()
        return f"sbt_{public_key.removeprefix(_KEY)}_{mac}"


def _bad_token() -> Unauthenticated:
    return Unauthenticated(
        why="this is no token of this sandbox, or it has ended",
        reason="bad_sandbox_token",
        hint="Connect to the sandbox again with the API key: the answer has a token.",
    )

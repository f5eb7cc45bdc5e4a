"""What a key may do, in words. A child's scopes are some of its parent's, never others."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sandboxer.kernel.errors import InvalidRequest


class Scope(StrEnum):
    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_CREATE = "sandboxes:create"
    # Extend, freeze, thaw, stop, resume, recreate.
    SANDBOXES_MANAGE = "sandboxes:manage"
    SANDBOXES_DESTROY = "sandboxes:destroy"
    # Commands, processes, terminals.
    EXEC = "exec"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    ACCOUNT_READ = "account:read"
    # Buy, top up, redeem; caps and other settings of the account.
    ACCOUNT_MANAGE = "account:manage"
    # Cut, top up and revoke child keys.
    KEYS_DELEGATE = "keys:delegate"


ALL = frozenset(Scope)


def parse(words: Iterable[str]) -> frozenset[Scope]:
    known = {scope.value for scope in Scope}
    given = list(words)
    if unknown := sorted({str(word) for word in given} - known):
        raise InvalidRequest(
            field="scopes", why=f"no such scope: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    return frozenset(Scope(word) for word in given)


def to_json(scopes: Iterable[Scope]) -> list[str]:
    return sorted(scope.value for scope in scopes)

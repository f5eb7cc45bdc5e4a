"""What a key may do, in words. A child's scopes are some of its parent's, never others."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.operations.declaration import Scope

__all__ = ["ALL", "Scope", "parse", "to_json"]

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

"""Delegated keys as the words of the wire."""

from __future__ import annotations

from typing import Any

from sandboxer.accounts import delegation, scopes
from sandboxer.wire.keys import DelegatedKey


def shown_key(key: delegation.DelegatedKey) -> DelegatedKey:
    return DelegatedKey(**facts(key))


def facts(key: delegation.DelegatedKey) -> dict[str, Any]:
    return {
        "public_key": key.public_key,
        "account": key.account,
        "name": key.name,
        "parent": key.parent,
        "generation": key.generation,
        "scopes": scopes.to_json(key.scopes),
        "depth": key.depth,
        "slots": key.slots,
        "expires_at": key.expires_at,
        "state": key.state.value,
        "reason": key.reason,
        "created_at": key.created_at,
        "ended_at": key.ended_at,
    }

"""`label=key=value` in the query of a list, as sandboxes and snapshots take it."""

from __future__ import annotations

from sandboxer.kernel.errors import InvalidRequest


def labels_of(filters: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in filters:
        key, _, value = text.partition("=")
        if labels.setdefault(key, value) != value:
            raise InvalidRequest(field="label", why=f"{key} cannot have two values at once")
    return labels

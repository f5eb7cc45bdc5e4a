"""Keeps E2B's metadata as labels, by which lists can be filtered.

A label's key is narrower than a key of metadata: bytes that it cannot have are written as `-` and two digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote_plus

from sandboxer.kernel.errors import InvalidRequest

_PREFIX = "e2b/"
_MOST = 63
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._")
_WRITTEN = re.compile(r"-([0-9a-f]{2})")


def labels_of(metadata: Mapping[str, str]) -> dict[str, str]:
    return {_label(key): value for key, value in metadata.items()}


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns what of the labels is metadata."""
    found = {key.removeprefix(_PREFIX): value for key, value in labels.items() if key.startswith(_PREFIX)}
    return {_key(key): value for key, value in found.items()}


def wanted_labels(query: str) -> dict[str, str]:
    """Returns the labels that a filter names: a query inside a query, each word of which is quoted again."""
    return labels_of({unquote_plus(key): unquote_plus(value) for key, value in parse_qsl(query)})


def _label(key: str) -> str:
    label = _PREFIX + "".join(
        chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in key.encode("utf-8", "surrogatepass")
    )
    if len(label) > _MOST or not key:
        raise InvalidRequest(field="metadata", why=f"the key {key[:80]!r} is empty or too long to be kept")
    return label


def _key(text: str) -> str:
    raw = _WRITTEN.sub(lambda found: chr(int(found[1], 16)), text)
    return raw.encode("latin-1").decode("utf-8", "replace")

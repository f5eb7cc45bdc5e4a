"""What @stacks/transactions makes of things; `testchains/stacks/node/vectors.mjs` makes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandboxer.identity.signatures.stacks import Value
from sandboxer.payments.stacks.clarity import Cursor, read_value

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("vectors.json").read_text())


def named(kind: str) -> list[str]:
    return [f"{vector['name']}-{vector.get('network', '')}".rstrip("-") for vector in VECTORS[kind]]


def transaction(name: str, network: str = "testnet") -> dict[str, Any]:
    return next(v for v in VECTORS["transactions"] if (v["name"], v["network"]) == (name, network))


ORIGIN = "753b7cc01a1a2e86221266a154af739463fce51219d97e4f856cd7200c3bd2a601"
SPONSOR = "edf9aee84d9b7abc145504dde6726c64f369d37ee34ded868fabd876c26570bc01"


def deserialize(raw: bytes) -> Value:
    """One value and nothing after it; raises InvalidRequest for anything else."""
    cursor = Cursor(raw)
    value = read_value(cursor)
    cursor.end()
    return value

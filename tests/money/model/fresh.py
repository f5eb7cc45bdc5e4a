"""What makes the start of a server quick: a schedule starts several, and most of its time went there.

A database that is migrated once for this process and copied; authorities that nobody asks are not read; what
takes seconds to import is imported before a schedule's time runs.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import certifi

from sandboxer.store.databases import open_database
from sandboxer.store.migrations import migrate

_LAST = "-----END CERTIFICATE-----"
# For the first 402 of a process.
_SLOW = ("x402.extensions.bazaar.resource_service", "x402.extensions.payment_identifier")


@contextmanager
def made_ready(folder: Path, database: str | None) -> Iterator[Path]:
    """A state folder with an empty, migrated database, unless the database lies elsewhere."""
    _import_slow_ones()
    state, trust = folder / "state", folder / "one-authority.pem"
    if database is None:
        state.mkdir(mode=0o700)
        (state / "sandboxer.db").write_bytes(_migrated())
    trust.write_text(Path(certifi.where()).read_text().partition(_LAST)[0] + _LAST + "\n")
    with mock.patch.object(certifi, "where", return_value=str(trust)):
        yield state


@cache
def _import_slow_ones() -> None:
    for name in _SLOW:
        importlib.import_module(name)


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        path = Path(folder) / "sandboxer.db"
        database = open_database(f"sqlite:///{path}")
        migrate(database)
        database.writing.dispose()
        database.reading.dispose()
        return path.read_bytes()

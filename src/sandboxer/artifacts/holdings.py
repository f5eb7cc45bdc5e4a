"""All that an account keeps: every noun of this room that has a disk of its own is named here.

A test compares this list with the tables: what is not on it would be kept without anybody's counting it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection

from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes

_MB = 1 << 20
# By its table: how many bytes an account keeps in it.
NOUNS: Mapping[str, Callable[[Connection, str], int]] = {
    snapshots.snapshots.name: lambda conn, account: snapshots.holding(conn, account).size_bytes,
    images.published_images.name: lambda conn, account: images.holding(conn, account).size_bytes,
    volumes.volumes.name: lambda conn, account: volumes.held_by(conn, account).size_mb * _MB,
}


def held_mb(conn: Connection, account: str) -> int:
    """Rounded up."""
    return -(-sum(held(conn, account) for held in NOUNS.values()) // _MB)

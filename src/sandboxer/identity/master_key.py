"""The master key belongs to the database it has sealed: another one, or a new one, is refused at the start.

The database knows a value that is derived from the key and says nothing about it. Without this a lost
`master.key` would be replaced by a fresh one, and every secret would fail to open one by one.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, select, update

from sandboxer.identity.seal import Seal, open_seal
from sandboxer.kernel.errors import Conflict
from sandboxer.store.claim import server_claim
from sandboxer.store.engine import Store

_REMEDY = "bring back the master.key that was backed up with it (`sandboxer backup` puts it into the file)"


async def open_master_key(store: Store, path: Path) -> Seal:
    """The seal of this database's key; made if neither the key nor the database is older than this start."""
    known = await store.read(_known)
    if known is not None and not path.exists():
        raise Conflict(why=f"{path} is missing, and this database was sealed with it; {_REMEDY}")
    seal = open_seal(path)
    mark = seal.derive("sandboxer master key check v1").hex()
    if known is None:
        await store.write(lambda conn: conn.execute(update(server_claim).values(key_check=mark)))
    elif known != mark:
        raise Conflict(why=f"{path} is not the key that this database was sealed with; {_REMEDY}")
    return seal


def _known(conn: Connection) -> str | None:
    found: str | None = conn.execute(select(server_claim.c.key_check)).scalar()
    return found

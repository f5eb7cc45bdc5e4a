from __future__ import annotations

from dataclasses import dataclass

import pytest

from sandboxer.identity.dependencies import WalletIdentity, open_wallet_identity
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.store.engine import Store
from tests.support.identity import StillClock

SEAL = Seal(b"k" * 32)
URL = "https://sandboxer.example"
DOMAIN = "sandboxer.example"
SECRET = "s" * 40


@dataclass(kw_only=True)
class Door:
    store: Store
    clock: StillClock
    keys: Keys
    identity: WalletIdentity

    async def restarted(self) -> Door:
        """Another process on the same database."""
        return await open_door(self.store, self.clock)


async def open_door(store: Store, clock: StillClock, *, secret: str | None = SECRET) -> Door:
    keys = Keys(store, SEAL, clock=clock)
    identity = await open_wallet_identity(store, SEAL, clock, keys, url=URL, session_secret=secret)
    return Door(store=store, clock=clock, keys=keys, identity=identity)


@pytest.fixture
async def door(store: Store) -> Door:
    """On both databases."""
    return await open_door(store, StillClock())

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandboxer.identity.authenticate import Authenticator, Verdict, canonical_v1, canonical_v2, sign
from sandboxer.identity.keys import Keys, NewKey
from sandboxer.identity.nonces import NonceRepository
from sandboxer.identity.seal import Seal
from sandboxer.store.engine import Store, open_store

START = datetime(2026, 11, 15, 12, 0, 0, 500_000, tzinfo=UTC)


class StillClock:
    def __init__(self, now: datetime = START) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, delay: timedelta) -> None:
        self.moment += delay


@dataclass(kw_only=True)
class Signed:
    """A signed request, in parts that an attacker can exchange one by one."""

    key: NewKey
    method: str = "POST"
    path: str = "/v1/sandboxes?wait=true"
    body: bytes = b'{"profile":"x"}'
    timestamp: str = str(int(START.timestamp()) + 1)
    nonce: str = "nonce-0123456789"
    headers: dict[str, str] = field(default_factory=dict)

    def v2(self) -> Signed:
        digest = hashlib.sha256(self.body).hexdigest()
        canonical = canonical_v2(self.timestamp, self.nonce, self.method, self.path, digest)
        self.headers = {
            "authorization": f"Bearer {self.key.public_key}",
            "x-timestamp": self.timestamp,
            "x-nonce": self.nonce,
            "x-content-sha256": digest,
            "x-signature": sign(self.key.secret_key.encode(), canonical),
        }
        return self

    def v1(self) -> Signed:
        canonical = canonical_v1(self.timestamp, self.method, self.path, self.body)
        self.headers = {
            "authorization": f"Bearer {self.key.public_key}",
            "x-timestamp": self.timestamp,
            "x-signature": sign(self.key.secret_key.encode(), canonical),
        }
        return self

    def raw(self) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]


@dataclass(kw_only=True)
class Gate:
    """An authenticator with two keys, checking whole requests as the HTTP edge does."""

    authenticator: Authenticator
    keys: Keys
    clock: StillClock
    alice: NewKey
    bob: NewKey

    async def check(self, request: Signed, extra: tuple[tuple[bytes, bytes], ...] = ()) -> Verdict:
        verdict = await self.authenticator.check_head(
            [*request.raw(), *extra], request.method, request.path, self.clock.now()
        )
        if verdict.needs_body:
            verdict.verify(request.body)
        else:
            check = verdict.body_check()
            for at in range(0, len(request.body), 3):
                check.update(request.body[at : at + 3])
            check.finish()
        return verdict


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    """SQLite only: nothing here depends on the database; `test_keys` runs on both."""
    store: Store = open_store(f"sqlite:///{tmp_path}/x.db")
    clock = StillClock()
    keys = Keys(store, Seal(b"k" * 32), clock=clock)
    alice = await keys.create("alice", "a", accepts_v1=True)
    bob = await keys.create("bob", "b")
    authenticator = Authenticator(keys, NonceRepository(START, journal_dir=tmp_path))
    clock.moment += timedelta(seconds=1)
    yield Gate(authenticator=authenticator, keys=keys, clock=clock, alice=alice, bob=bob)
    await store.close()

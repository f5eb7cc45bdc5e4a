"""Keys after their making: the secret handed over once, regenerated, suspended, expired, judged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest
from sqlalchemy import text

from sandboxer.identity.dependencies import ensure_owner
from sandboxer.identity.key_life import Claim, KeyLife, Tier, new_claim
from sandboxer.identity.keys import Keys, NewKey, secret_hash
from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import Broken, Conflict, NotFound
from sandboxer.observe.events import Events
from sandboxer.store.engine import Store
from tests.support.identity import StillClock

SEAL = Seal(b"k" * 32)


@dataclass(kw_only=True)
class Desk:
    store: Store
    clock: StillClock
    keys: Keys
    life: KeyLife

    async def prepared(self, claim: Claim) -> str:
        return await self.store.write(
            lambda conn: self.life.prepare(conn, "acc", "paid", claim_hash=claim.hash, actor="payment:1")
        )


@pytest.fixture
def use_cases(store: Store) -> Desk:
    clock = StillClock()
    keys = Keys(store, SEAL, clock=clock)
    return Desk(store=store, clock=clock, keys=keys, life=KeyLife(keys, store, clock))


async def test_the_secret_of_a_paid_key_is_fetched_once(use_cases: Desk) -> None:
    claim = new_claim()
    public_key = await use_cases.prepared(claim)
    fetched = await use_cases.life.reveal(public_key, claim.token)
    found = await use_cases.keys.find(public_key)
    assert found is not None
    assert found.secret == fetched.secret_key.encode()
    with pytest.raises(Conflict) as caught:
        await use_cases.life.reveal(public_key, claim.token)
    assert caught.value.facts["reason"] == "already_revealed"
    with pytest.raises(Conflict):
        await use_cases.life.regenerate_by_claim(public_key, claim.token)
    kinds = [event.kind for event in await Events(use_cases.store).page(public_key)]
    assert kinds == ["key.created", "key.revealed"]


async def test_of_many_who_fetch_at_once_one_gets_the_secret(use_cases: Desk) -> None:
    claim = new_claim()
    public_key = await use_cases.prepared(claim)
    got: list[NewKey] = []

    async def fetch() -> None:
        try:
            got.append(await use_cases.life.reveal(public_key, claim.token))
        except Conflict:
            return

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(fetch())
    assert len(got) == 1


async def test_after_fifteen_minutes_only_a_new_secret_can_be_had(use_cases: Desk) -> None:
    claim = new_claim()
    public_key = await use_cases.prepared(claim)
    before = await use_cases.keys.find(public_key)
    assert before is not None
    use_cases.clock.moment += timedelta(minutes=15)
    with pytest.raises(Conflict) as caught:
        await use_cases.life.reveal(public_key, claim.token)
    assert caught.value.facts["reason"] == "reveal_over"
    made = await use_cases.life.regenerate_by_claim(public_key, claim.token)
    assert made.secret_key.encode() != before.secret
    found = await use_cases.keys.find(public_key)
    assert found is not None
    assert found.secret == made.secret_key.encode()
    with pytest.raises(Conflict):
        await use_cases.life.regenerate_by_claim(public_key, claim.token)


async def test_a_wrong_claim_looks_like_an_unknown_key(use_cases: Desk) -> None:
    claim = new_claim()
    public_key = await use_cases.prepared(claim)
    plain = await use_cases.keys.create("acc", "plain")
    attempts = [
        (public_key, ""),
        (public_key, claim.hash),
        (public_key, claim.token + " "),
        (public_key, "\udcff"),
        (plain.public_key, ""),
        (plain.public_key, claim.token),
        ("sbx-pk-" + "0" * 26, claim.token),
    ]
    for act in (use_cases.life.reveal, use_cases.life.regenerate_by_claim):
        for key, token in attempts:
            with pytest.raises(NotFound) as caught:
                await act(key, token)
            assert caught.value.facts == {"what": "key", "id": key}
    await use_cases.life.reveal(public_key, claim.token)
    assert claim.token not in repr(claim)


async def test_regenerating_ends_the_old_secret_at_once(use_cases: Desk) -> None:
    old = await use_cases.keys.create("acc", "k")
    await use_cases.keys.find(old.public_key)
    new = await use_cases.life.regenerate(old.public_key, account="acc", actor="key:x")
    assert (new.public_key, new.account, new.name) == (old.public_key, "acc", "k")
    found = await use_cases.keys.find(old.public_key)
    assert found is not None
    assert found.secret == new.secret_key.encode() != old.secret_key.encode()
    with pytest.raises(NotFound):
        await use_cases.life.regenerate(old.public_key, account="mallory", actor="key:y")
    await use_cases.keys.revoke(old.public_key)
    with pytest.raises(NotFound):
        await use_cases.life.regenerate(old.public_key, account="acc", actor="key:x")


async def test_a_suspended_key_is_not_found_until_unsuspended(use_cases: Desk) -> None:
    key = await use_cases.keys.create("acc", "k")
    await use_cases.keys.find(key.public_key)
    await use_cases.life.suspend(key.public_key, why="abuse", actor="op")
    await use_cases.life.suspend(key.public_key, why="again", actor="op")
    assert await use_cases.keys.find(key.public_key) is None
    (listed,) = await use_cases.keys.list("acc")
    assert listed.suspended_why == "abuse"
    assert await Keys(use_cases.store, SEAL, clock=use_cases.clock).find(key.public_key) is None
    await use_cases.life.unsuspend(key.public_key, actor="op")
    assert await use_cases.keys.find(key.public_key) is not None


async def test_a_key_expires_also_from_the_cache_and_can_be_extended(use_cases: Desk) -> None:
    until = use_cases.clock.now() + timedelta(seconds=30)
    key = await use_cases.keys.create("acc", "k", expires_at=until)
    assert await use_cases.keys.find(key.public_key)
    use_cases.clock.moment = until
    assert await use_cases.keys.find(key.public_key) is None
    await use_cases.life.set_expiry(key.public_key, until + timedelta(days=30), actor="payment")
    assert await use_cases.keys.find(key.public_key)


async def test_the_owners_key_is_neither_suspended_nor_regenerated(use_cases: Desk, tmp_path) -> None:
    owner = await ensure_owner(use_cases.keys, tmp_path / "owner.json", url="u")
    with pytest.raises(Conflict):
        await use_cases.life.suspend(owner, why="x", actor="op")
    with pytest.raises(Conflict):
        await use_cases.life.regenerate(owner, account=None, actor="op")
    with pytest.raises(Conflict):
        await use_cases.life.set_expiry(owner, use_cases.clock.now(), actor="op")
    assert await use_cases.keys.find(owner)


async def test_validation_tells_tier_limits_and_why_not(use_cases: Desk) -> None:
    key = await use_cases.keys.create("acc", "k", expires_at=use_cases.clock.now() + timedelta(days=1))
    tier = Tier(level=8, requests_per_minute=56, slots=2, until=None)

    async def tier_of(account: str) -> Tier | None:
        return tier if account == "acc" else None

    report = await use_cases.life.validate(key.public_key, tier_of=tier_of)
    assert (report.is_valid, report.reason, report.tier) == (True, None, tier)
    assert "acc" not in repr(report).replace("account", "")
    await use_cases.life.suspend(key.public_key, why="private reasons", actor="op")
    report = await use_cases.life.validate(key.public_key, tier_of=tier_of)
    assert (report.is_valid, report.reason) == (False, "suspended")
    assert "private" not in repr(report)
    await use_cases.life.unsuspend(key.public_key, actor="op")
    use_cases.clock.moment += timedelta(days=1, seconds=5)
    report = await use_cases.life.validate(key.public_key)
    assert (report.is_valid, report.reason, report.expired_ago_s) == (False, "expired", 5)
    await use_cases.keys.revoke(key.public_key)
    revoked = await use_cases.life.validate(key.public_key)
    unknown = await use_cases.life.validate("sbx-pk-" + "0" * 26)
    assert revoked.reason == unknown.reason == "invalid_key"
    assert (revoked.expires_at, revoked.tier) == (unknown.expires_at, unknown.tier)


async def test_a_hash_beside_the_sealed_secret_betrays_an_exchange(use_cases: Desk) -> None:
    key = await use_cases.keys.create("acc", "k")
    query = text("SELECT secret_hash FROM keys")
    assert await use_cases.store.read(lambda conn: conn.execute(query).scalar()) == secret_hash(
        key.secret_key.encode()
    )
    sealed = SEAL.close(b"sbx-sk-mine", context=key.public_key)
    exchange = text("UPDATE keys SET sealed_secret = :sealed")
    await use_cases.store.write(lambda conn: conn.execute(exchange, {"sealed": sealed}))
    with pytest.raises(Broken):
        await use_cases.keys.find(key.public_key)

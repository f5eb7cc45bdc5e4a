"""Acts of lives and time: sandboxes, volumes, budgets, clocks, deaths."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection

from sandboxer.accounts import limits, operators, records
from sandboxer.accounts.authority import ALL_SCOPES
from sandboxer.accounts.caps import Caps
from sandboxer.accounts.delegation import Cut, cut, top_up
from sandboxer.accounts.revocation import revoke
from sandboxer.artifacts.volumes.use_cases import Wanted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.values import new_id
from sandboxer.money.buckets import load_bucket, open_bucket
from sandboxer.payments.credits import credit_final, reverse_final
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation, lifetime
from tests.money.model.people import Person, Thing
from tests.money.model.schedule import EVERYTHING, Run
from tests.support.sandboxes import ACTS as BY_NAME

OPERATOR = Caller(public_key="sbx-pk-owner", account="owner", is_owner=True)
WAITS_S = (1.0, 7.123457, 29.0, 61.5, 185.000001)
AWAY_S = (3.0, 149.0, 3600.5, 172_800.0)
VOLUME_MB = 256
# Costs so much while it is only kept that a debt for it would show within minutes.
LARGE_MB = 65_536
# So many have sats when a schedule begins, and so many.
FUNDED, FUNDS = 2, (300, 3000, 20_000)


async def begin(run: Run) -> None:
    for name in ("ann", "bob", "cat"):
        person = Person(name, Caller(public_key=f"sbx-pk-{name}", account=f"acc_{name}"))
        run.cast.people.append(person)
    now = run.world.platform.clock.now()

    def make(conn: Connection) -> None:
        for person in run.cast.people:
            records.ensure(conn, person.account, actor="model", now=now)
            open_bucket(conn, person.account, now=now)

    await run.world.write(make)
    for person in run.cast.people[:FUNDED]:
        await pay_in(run, person, run.dice.choice(FUNDS))


def pick(run: Run, *, of: str = "anyone") -> Person:
    people = run.cast.people
    if of == "child" and (children := [one for one in people if one.is_child]):
        people = children
    person = run.dice.choice(people)
    run.touched = person.standing
    return person


def pick_thing(run: Run) -> Thing | None:
    living = [one for one in run.cast.things.values() if one.state not in ("destroyed", "failed")]
    if not living:
        return None
    thing = run.dice.choice(living)
    run.touched = f"sandbox:{thing.state}"
    return thing


async def pay_in(run: Run, person: Person, sats: int) -> None:
    now, id = run.world.platform.clock.now(), f"model:{run.cast.number()}"
    person.outside += sats
    person.ever += sats
    try:
        await run.world.write(
            lambda conn: credit_final(conn, person.account, sats, id=id, source="model", now=now)
        )
    except SandboxerError:
        person.outside -= sats
        raise


async def pay(run: Run) -> None:
    await pay_in(run, pick(run), run.dice.choice((1, 60, 700, 20_000)))


async def an_outside_payment_fails(run: Run) -> None:
    await fail_payment(run, pick(run, of="child"), run.dice.choice((50, 5000)))


async def fail_payment(run: Run, person: Person, sats: int) -> None:
    """Credited, and taken back: as if it had never been."""
    await pay_in(run, person, sats)
    now, id = run.world.platform.clock.now(), f"model:back:{run.cast.number()}"
    await run.world.write(
        lambda conn: reverse_final(
            conn, person.account, sats, id=id, reason="reorganised", now=now, source="model"
        )
    )
    person.outside -= sats
    person.ever -= sats
    person.reversed += sats


async def create(run: Run) -> None:
    disk_mb = run.dice.choice((None, None, LARGE_MB))
    await create_for(run, pick(run), run.dice.choice(("1m", "2h", "24h")), disk_mb=disk_mb)


async def create_for(run: Run, person: Person, ttl: str, *, disk_mb: int | None = None) -> None:
    made = None
    try:
        caller = replace(person.caller, public_key=_name_of(run, person))
        wish = CreateRequest(ttl=ttl, resources=WantedResources(disk_mb=disk_mb))
        made = await creation.create(run.world.platform.sandboxes, wish, caller)
    finally:
        if made is not None:
            assert person.may_act, f"{person.name} is {person.status} and got a sandbox"
            if ttl == "1m":
                person.is_loose = True
            run.cast.things[made.id] = Thing(made.id, person)


def _name_of(run: Run, person: Person) -> str:
    """A delegated account may act under many names: its key, and each wallet that is linked to it."""
    name = person.caller.public_key
    return f"{name}-{run.dice.randrange(9)}" if person.is_child else name


async def _ask(run: Run, word: str) -> None:
    thing = pick_thing(run)
    if thing is not None:
        await BY_NAME[word](run.world.platform.sandboxes, thing.id, thing.owner.caller)


async def freeze(run: Run) -> None:
    await _ask(run, "freeze")


async def thaw(run: Run) -> None:
    await _ask(run, "thaw")


async def stop(run: Run) -> None:
    await _ask(run, "stop")


async def resume(run: Run) -> None:
    await _ask(run, "resume")


async def destroy(run: Run) -> None:
    thing = pick_thing(run)
    if thing is not None:
        thing.is_ended = True
        await lifetime.destroy(run.world.platform.sandboxes, thing.id, thing.owner.caller)


async def extend(run: Run) -> None:
    thing = pick_thing(run)
    if thing is not None:
        await lifetime.change_ttl(run.world.platform.sandboxes, thing.id, "3h", thing.owner.caller)


async def make_volume(run: Run) -> None:
    await make_volume_for(run, pick(run))


async def make_volume_for(run: Run, person: Person) -> None:
    use_cases = run.world.platform.artifacts.volumes
    had = await run.world.read(lambda conn: load_bucket(conn, person.account))
    name = f"v{run.cast.number()}"
    made = await use_cases.create(Wanted(name=name, size_mb=VOLUME_MB), person.caller)
    assert person.may_act, f"{person.name} is {person.status} and got a volume"
    assert had.posted > 0, f"{person.name} has {had.posted} sats and keeps {VOLUME_MB} MB"
    person.is_loose = True
    run.cast.volumes[made.id] = (person, use_cases.repository.rate(person.account, "", VOLUME_MB << 20))


async def drop_volume(run: Run) -> None:
    if run.cast.volumes:
        id = run.dice.choice(list(run.cast.volumes))
        person, _ = run.cast.volumes[id]
        run.touched = "volume"
        await run.world.platform.artifacts.volumes.drop(id, person.caller)


async def delegate(run: Run) -> None:
    await cut_for(run, pick(run), run.dice.choice((1, 50, 900)), key_cap=run.dice.choice((None, 20)))


async def cut_for(run: Run, parent: Person, sats: int, *, key_cap: int | None = None) -> Person:
    """A child of this parent."""
    name = f"child{run.cast.number()}"
    key = "sbx-pk-" + new_id("x")[2:]
    child = Person(name, Caller(public_key=key, account=new_id("acc")), parent=parent)
    now = run.world.platform.clock.now()
    child.key_cap = key_cap
    caps = Caps(per_key_sats=child.key_cap)
    wish = Cut(scopes=ALL_SCOPES, budget_sats=sats, depth=0 if parent.is_child else 1, caps=caps)
    await run.world.write(
        lambda conn: cut(
            conn,
            parent.account,
            wish,
            public_key=key,
            cut_by=parent.caller.public_key,
            account=child.account,
            now=now,
        )
    )
    assert parent.may_act, f"{parent.name} is {parent.status} and gave a budget"
    parent.given += sats
    child.received += sats
    run.cast.people.append(child)
    return child


async def give_more(run: Run) -> None:
    child = pick(run, of="child")
    if child.parent is None:
        return
    parent, sats, id = child.parent, run.dice.choice((1, 300)), f"t{run.cast.number()}"
    now = run.world.platform.clock.now()
    for time in range(2):
        await run.world.write(
            lambda conn: top_up(conn, parent.account, child.account, sats, id=id, cut_by="k", now=now)
        )
        if time == 0:
            parent.given += sats
            child.received += sats


async def revoke_child(run: Run) -> None:
    child = pick(run, of="child")
    if child.is_child:
        await revoke_one(run, child)


async def revoke_one(run: Run, child: Person) -> None:
    now = run.world.platform.clock.now()
    await run.world.write(lambda conn: revoke(conn, child.account, actor="model", reason="asked", now=now))
    for one in (child, *run.cast.below(child)):
        one.status = "ending" if one.status != "ended" else "ended"
        one.is_loose = True


async def suspend(run: Run) -> None:
    await _change(run, "suspend_account", "suspended")


async def reinstate(run: Run) -> None:
    await _change(run, "reinstate_account", "active")


async def close(run: Run) -> None:
    await _change(run, "close_account", "closed")


async def _change(run: Run, word: str, status: str) -> None:
    person = pick(run)
    if not person.is_child:
        await change(run, person, word, status)


async def change(run: Run, person: Person, word: str, status: str) -> None:
    now = run.world.platform.clock.now()
    act = getattr(operators, word)
    await run.world.write(lambda conn: act(conn, OPERATOR, person.account, reason="model", now=now))
    person.status = status


async def cap(run: Run) -> None:
    person, sats = pick(run), run.dice.choice((7, 60, 400))
    if not any(thing.owner is person for thing in run.cast.things.values()) and person.cap is None:
        await cap_for(run, person, sats)


async def cap_for(run: Run, person: Person, sats: int) -> None:
    now = run.world.platform.clock.now()
    bounds = Caps(per_sandbox_sats=sats)
    await run.world.write(
        lambda conn: operators.cap_account(conn, OPERATOR, person.account, bounds, reason="model", now=now)
    )
    person.cap = sats
    person.is_loose = True


async def buy_tier(run: Run) -> None:
    person = pick(run)
    now, tier = run.world.platform.clock.now(), run.dice.choice((1, 5))
    until = now + timedelta(minutes=run.dice.choice((1, 60)))
    if person.is_child:
        return
    policy = run.world.platform.limits
    before = limits.requests_per_minute(None, policy=policy) or 0
    await run.world.write(
        lambda conn: operators.entitle_account(
            conn, OPERATOR, person.account, tier=tier, until=until, reason="model", now=now
        )
    )
    person.is_loose = True
    after = limits.requests_per_minute(tier, policy=policy) or 0
    assert after >= before, f"tier {tier} lowers {before} requests a minute to {after}"


async def time_passes(run: Run) -> None:
    run.touched = EVERYTHING
    await run.world.live(timedelta(seconds=run.dice.choice(WAITS_S)))


async def server_stands_still(run: Run) -> None:
    run.touched = EVERYTHING
    await run.world.advance(timedelta(seconds=run.dice.choice(AWAY_S)))


async def server_is_killed(run: Run) -> None:
    run.touched = EVERYTHING
    await run.oracle.look()
    await run.world.kill()
    await run.world.advance(timedelta(seconds=run.dice.choice(AWAY_S)))
    await run.world.open()


async def server_restarts(run: Run) -> None:
    run.touched = EVERYTHING
    await run.world.close()
    await run.world.advance(timedelta(seconds=run.dice.choice((0.5, 30.0))))
    await run.world.open()


async def host_reboots(run: Run) -> None:
    run.touched = EVERYTHING
    await run.oracle.look()
    await run.world.kill()
    run.oracle.host_died()
    await run.world.reboot(timedelta(seconds=run.dice.choice(AWAY_S)))
    await run.world.open()


async def wall_jumps(run: Run) -> None:
    by = run.dice.choice((-3600, -90, 90, 3600, 86_400))
    run.touched = EVERYTHING
    run.oracle.clock_lied()
    run.world.host.set_wall(timedelta(seconds=by))


async def wall_is_mended(run: Run) -> None:
    run.touched = EVERYTHING
    run.oracle.clock_lied()
    run.world.host.set_wall(run.world.host.truth.now() - run.world.host.read().wall)


ACTS = {
    "pay": (8, pay),
    "create": (12, create),
    "freeze": (3, freeze),
    "thaw": (2, thaw),
    "stop": (3, stop),
    "resume": (3, resume),
    "destroy": (3, destroy),
    "extend": (2, extend),
    "make_volume": (3, make_volume),
    "drop_volume": (2, drop_volume),
    "delegate": (6, delegate),
    "give_more": (2, give_more),
    "an_outside_payment_fails": (3, an_outside_payment_fails),
    "revoke_child": (3, revoke_child),
    "suspend": (2, suspend),
    "reinstate": (2, reinstate),
    "close": (1, close),
    "cap": (2, cap),
    "buy_tier": (1, buy_tier),
    "time_passes": (14, time_passes),
    "server_stands_still": (2, server_stands_still),
    "server_is_killed": (3, server_is_killed),
    "server_restarts": (1, server_restarts),
    "host_reboots": (2, host_reboots),
    "wall_jumps": (2, wall_jumps),
    "wall_is_mended": (1, wall_is_mended),
}

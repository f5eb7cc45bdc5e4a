"""What must be true after every step, by sums that are simple and the driver's own.

Time: a sandbox that was seen in a state costs that state's rate until it is looked at next, and nothing while
the host was down. Money: what came from outside, as the chains know it; what the driver moved; and the rest
is what the ledger says was charged, which must lie within what time allows.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.delegation import find_key
from sandboxer.accounts.sums import GIVEN, RETURNED
from sandboxer.money.amounts import NSATS_PER_SAT
from sandboxer.money.buckets import settle_account
from sandboxer.money.heartbeat import BEAT
from sandboxer.money.ledger import from_row
from sandboxer.money.records import Bucket, bucket_id, debt_id
from sandboxer.money.tables import ledger_transfers
from sandboxer.money.transfers import Phase, Transfer
from sandboxer.money.verification import verify
from sandboxer.sandboxes.charging import spent_sats
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from tests.money.model.people import UNSEEN, Cast, Person, Thing
from tests.money.model.world import World

_US = timedelta(microseconds=1)
RUNNING = (State.READY, State.ACTIVE, State.GRACE)
LOOSE = (State.GRACE, State.REAPED)
OVER = (State.EXPIRED, State.DESTROYING, State.DESTROYED, State.FAILED)
# Grace lasts no longer, however many receipts renew it.
HARD_CAP = timedelta(minutes=10)
# All that may leave a delegated bucket: usage, budgets of its children, the return, and what never came.
FROM_BUDGETS = frozenset({"charge", "repay", GIVEN, RETURNED, "reversal", "write_off"})
# Sats that came from outside, or went back there.
INWARD, OUTWARD = "payment", "reversal"


class Oracle:
    def __init__(self, world: World, cast: Cast) -> None:
        self.world = world
        self.cast = cast
        world.before_time = self.before_time

    # -- time ----------------------------------------------------------------------------------------------

    async def before_time(self, delay: timedelta, is_host_up: bool) -> None:
        """So much is about to pass: whatever is there now costs its rate until then, at the most."""
        if self.world.is_dead:
            # It died in the middle of this act, after it had made something perhaps: that runs on.
            self._see_new()
        else:
            await self.look()
        # Nobody is charged for a reboot, not even for disks that are only kept: no clock proves its time.
        us = delay // _US if is_host_up else 0
        for thing in self.cast.things.values():
            self._pass(thing.owner, thing.rate, us)
        for owner, rate in self.cast.volumes.values():
            self._pass(owner, rate, us)

    def _pass(self, owner: Person, rate: int, us: int) -> None:
        owner.most += rate * us
        owner.least += rate * us

    async def look(self) -> None:
        """Every sandbox of ours, as the platform has it."""
        repository = self.world.platform.sandboxes.repository
        for id, thing in list(self.cast.things.items()):
            found = repository.peek(id) or await repository.find(id)
            if found is not None:
                _see(thing, found)
        self._see_new()

    def _see_new(self) -> None:
        """Those that nobody looked at yet, and those that a dying server made before it could answer."""
        for one in self.world.platform.sandboxes.repository.living():
            thing = self.cast.things.get(one.id)
            if thing is None and (owner := self.cast.by_account(one.account)) is not None:
                self.cast.things[one.id] = thing = Thing(one.id, owner)
            if thing is not None and thing.state == UNSEEN:
                _see(thing, one)

    def host_died(self) -> None:
        """Since the last sign of life nobody saw them alive: those seconds may be charged or not."""
        for thing in self.cast.things.values():
            thing.owner.least -= thing.rate * (BEAT * 3 // _US)
            # From then on it is stopped, and that is seen only when the next server looks.
            thing.owner.is_loose |= thing.is_running
        for owner, rate in self.cast.volumes.values():
            owner.least -= rate * (BEAT * 3 // _US)

    def clock_lied(self) -> None:
        """The server's time may stand or run slower than what really passes: never faster."""
        for person in self.cast.people:
            person.is_loose = True

    # -- money ---------------------------------------------------------------------------------------------

    async def check(self) -> None:
        await self.look()
        now = self.world.platform.clock.now()
        things = list(self.cast.things.values())
        repository = self.world.platform.sandboxes.repository
        records = [(thing, await repository.find(thing.id)) for thing in things]

        def check(conn: Connection) -> None:
            buckets = {one.account: settle_account(conn, one.account, now=now) for one in self.cast.people}
            proof = verify(conn)
            assert proof.is_whole, proof.faults
            assert set(proof.sums.values()) <= {0}, proof.sums
            moved = _moved(conn)
            for person in self.cast.people:
                self._check_person(conn, person, buckets[person.account], moved)
            for thing, record in records:
                if record is not None:
                    _check_cap(conn, thing, record, now)

        await self.world.write(check)

    def _check_person(self, conn: Connection, person: Person, bucket: Bucket, moved: list[Transfer]) -> None:
        mine = (bucket_id(person.account), debt_id(person.account))
        out = Counter[str]()
        into = Counter[str]()
        for one in moved:
            if one.debit in mine:
                out[one.kind] += one.amount
            if one.credit in mine:
                into[one.kind] += one.amount
        who = f"{person.name} ({person.account})"
        outside = into[INWARD] - out[OUTWARD]
        paid = outside - person.outside
        assert person.least_paid <= paid <= person.most_paid, (
            f"{who}: {person.outside} sats came and {person.least_paid} to {person.most_paid} by x402,"
            f" {outside} are credited"
        )
        assert out[GIVEN] == person.given, f"{who} gave {person.given}, the ledger moved {out[GIVEN]}"
        assert into[GIVEN] == person.received, f"{who} was given {person.received}, got {into[GIVEN]}"
        charged = (out["charge"] - into["refund"]) * NSATS_PER_SAT + bucket.flow.carried
        returned = sum(one.amount for one in moved if one.kind == RETURNED and one.credit == mine[0])
        fractions = NSATS_PER_SAT * (1 + sum(1 for _ in self.cast.below(person)))
        assert charged <= person.most + fractions, f"{who} is charged {charged} of at most {person.most}"
        # Who has nothing left is charged no more, whatever is still kept for him: then what he had is all
        # that was charged, which the balance below shows to the sat.
        person.is_loose |= _ran_dry(moved, mine[0])
        if not (person.is_loose or person.is_child):
            assert charged >= person.least - fractions, f"{who} is charged {charged}, used {person.least}"
        left = outside + person.received + returned - person.given - person.spent_on_cards
        left -= out["charge"] - into["refund"] + out[RETURNED] - into["write_off"]
        assert bucket.posted - bucket.debt == left, f"{who} has {bucket.posted - bucket.debt}, not {left}"
        self._check_debt(person, bucket, who)
        if person.key_cap is not None:
            spent = out["charge"] - into["refund"]
            assert spent <= person.key_cap, f"{who} spent {spent}, its key may {person.key_cap}"
        if person.is_child:
            assert set(out) <= FROM_BUDGETS | {OUTWARD}, f"{who}: a budget was spent on {sorted(out)}"
            self._check_return(conn, person, who)

    def _check_debt(self, person: Person, bucket: Bucket, who: str) -> None:
        """Nobody owes more than the grace that was earned, and what a chain took back."""
        grace = (person.ever + person.most_paid) // 10 + 2 * person.top_rate // 1000 + 2
        if person.had_receipt:
            grace += person.top_rate * (HARD_CAP // timedelta(seconds=1)) // 1000
        allowed = person.reversed + person.unsure + (0 if person.is_child else grace)
        assert bucket.debt <= allowed, f"{who} owes {bucket.debt}, {allowed} can be explained"

    def _check_return(self, conn: Connection, person: Person, who: str) -> None:
        """What a parent gave and nobody used goes back, whatever outsiders did meanwhile."""
        key = find_key(conn, person.account)
        if key is None or key.state is not KeyState.ENDED:
            return
        person.status = "ended"
        kept = key.kept_sats or 0
        brought = person.outside + person.most_paid
        assert kept <= brought, f"{who} kept {kept}, outsiders brought {brought}"

    def note_rates(self) -> None:
        for person in self.cast.people:
            rate = sum(thing.rate for thing in self.cast.things.values() if thing.owner is person)
            person.top_rate = max(person.top_rate, rate)


def _see(thing: Thing, found: Sandbox) -> None:
    card, state = found.terms.card, found.state
    thing.state = state.value
    thing.is_running = state in (*RUNNING, State.FROZEN)
    # Also of one in a slot of a tier, which may end at any moment: it costs so much at the most.
    if state in RUNNING:
        rate = card.running
    elif state is State.FROZEN:
        rate = card.frozen
    else:
        keeps = state in (State.STOPPED, State.REAPED) and not found.terms.keeps_free
        rate = card.stored if keeps else 0
    thing.rate = rate
    owner = thing.owner
    owner.top_rate = max(owner.top_rate, rate * 4)
    if state in LOOSE or (state in OVER and not thing.is_ended):
        owner.is_loose = True


def _moved(conn: Connection) -> list[Transfer]:
    found = (from_row(row) for row in conn.execute(select(ledger_transfers).order_by(ledger_transfers.c.seq)))
    return [one for one in found if one.phase in (Phase.SINGLE, Phase.POST)]


def _ran_dry(moved: list[Transfer], bucket: str) -> bool:
    """Whether it was ever spent to the last sat. Nothing else shows it: what is only kept stays as it is, and
    a payment may have come before anybody looked."""
    left = 0
    for one in moved:
        if one.credit == bucket:
            left += one.amount
        elif one.debit == bucket:
            left -= one.amount
            if left == 0:
                return True
    return False


def _check_cap(conn: Connection, thing: Thing, record: Sandbox, now: datetime) -> None:
    """What it is said to have spent is what its cap allowed."""
    cap = thing.owner.cap
    if cap is not None:
        spent = spent_sats(conn, record, now=now)
        assert spent <= cap, f"{thing.id} spent {spent} of {cap}"

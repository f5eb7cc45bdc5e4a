"""Acts that bring together what seldom meets by chance: a few steps each, in whatever world came before.

Without them a mend that was taken back would be found too, after far more schedules.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from sqlalchemy import Connection, select

from sandboxer.accounts import records
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, SandboxerError
from sandboxer.money.buckets import open_bucket
from sandboxer.payments.records import Payment, load
from sandboxer.payments.tables import payments
from tests.money.model import lives, paying, selling
from tests.money.model.evm import FORGETFUL, HONEST, MISSING, NULL_RECEIPTS, OTHER_FORK, Chain
from tests.money.model.paying import Paid
from tests.money.model.people import Person
from tests.money.model.schedule import Run

BUDGET = 900
# More often than a server asks in five minutes.
DEAF_TO = 10_000
SECOND = timedelta(seconds=1)


async def _funded(run: Run, sats: int) -> Person | None:
    """Somebody with a bucket of his own, and so much more in it."""
    able = [one for one in run.cast.people if not one.is_child and one.may_act]
    if not able:
        return None
    person = run.dice.choice(able)
    await lives.pay_in(run, person, sats)
    run.touched = "account:active"
    return person


async def _child(run: Run, *, sats: int = BUDGET, key_cap: int | None = None) -> Person | None:
    parent = await _funded(run, 2 * sats)
    return None if parent is None else await lives.cut_for(run, parent, sats, key_cap=key_cap)


async def _newcomer(run: Run) -> Person:
    """An account without a sat."""
    name = f"new{run.cast.number()}"
    person = Person(name, Caller(public_key=f"sbx-pk-{name}", account=f"acc_{name}"))
    now = run.world.platform.clock.now()

    def make(conn: Connection) -> None:
        records.ensure(conn, person.account, actor="model", now=now)
        open_bucket(conn, person.account, now=now)

    await run.world.write(make)
    run.cast.people.append(person)
    run.touched = "account:new"
    return person


async def newcomer_keeps_a_volume(run: Run) -> None:
    await lives.make_volume_for(run, await _newcomer(run))


async def child_buys_a_card(run: Run) -> None:
    if (child := await _child(run)) is not None:
        await selling.buy_card_for(run, child)


async def child_is_revoked_after_a_payment_failed(run: Run) -> None:
    if (child := await _child(run)) is not None:
        await lives.fail_payment(run, child, BUDGET)
        await lives.revoke_one(run, child)


async def child_ends_slowly(run: Run) -> None:
    """Its sandbox does not go at once: meanwhile it may do nothing, and what comes for it is counted."""
    child = await _child(run)
    if child is None:
        return
    await lives.create_for(run, child, "2h")
    backend = run.world.backend
    try:
        for word in ("stop", "destroy"):
            for _ in range(DEAF_TO):
                backend.fail_next(word, BackendLost(why="the model's wall is deaf"))
        await lives.revoke_one(run, child)
        run.touched = child.standing
        for act in (lives.create_for(run, child, "2h"), lives.cut_for(run, child, 1)):
            with suppress(SandboxerError):
                await act
        with suppress(SandboxerError):
            await lives.pay_in(run, child, 40)
        await run.world.live(10 * SECOND, is_obeyed=False)
    finally:
        backend._failures.clear()


async def child_acts_under_many_names(run: Run) -> None:
    """Each sandbox by another name of one key, whose cap they reach together."""
    if (child := await _child(run, sats=9 * BUDGET, key_cap=20)) is not None:
        for _ in range(3):
            await lives.create_for(run, child, "2h")
        await run.world.live(20 * SECOND)


async def cap_is_reached(run: Run) -> None:
    if (child := await _child(run)) is not None:
        await lives.cap_for(run, child, 7)
        await lives.create_for(run, child, "2h")
        await run.world.live(10 * SECOND)


async def nobody_is_there_while_it_runs(run: Run) -> None:
    """For so long that a poor account would owe thousands, and a rich one pay them, were it charged."""
    person = await _newcomer(run)
    how = run.dice.choice(("reboots", "dies", "hangs"))
    await lives.pay_in(run, person, 90_000 if how == "reboots" else 300)
    await lives.create_for(run, person, "24h")
    await run.world.calm()
    await run.oracle.look()
    away = timedelta(hours=run.dice.choice((3, 20)))
    if how == "hangs":
        await run.world.advance(away)
        return
    await run.world.kill()
    if how == "reboots":
        run.oracle.host_died()
        await run.world.reboot(away)
    else:
        await run.world.advance(away)
    await run.world.open()


async def it_runs_on_without_sats(run: Run) -> None:
    """Its wall does not stop it when grace is over: that is nobody's debt, though a server is there all the
    time."""
    person = await _newcomer(run)
    await lives.pay_in(run, person, 60)
    await lives.create_for(run, person, "24h")
    backend = run.world.backend
    try:
        for _ in range(DEAF_TO):
            backend.fail_next("stop", BackendLost(why="the model's wall is deaf"))
        await run.world.live(300 * SECOND, is_obeyed=False)
        await run.world.until_capped()
        await run.oracle.check()
    finally:
        backend._failures.clear()


async def suspended_wallet_pays(run: Run) -> None:
    """As anybody may, without credentials."""
    person = await _funded(run, 1)
    if person is None or not person.wallet:
        return
    await _be_honest(run)
    await lives.change(run, person, "suspend_account", "suspended")
    run.touched = "account:suspended"
    try:
        paid = await paying.sign(run, person, person)
        await paying.present(run, paid, person, paid.request, by_name=False)
    finally:
        await lives.change(run, person, "reinstate_account", "active")


async def invoice_is_overpaid(run: Run) -> None:
    if (person := await _funded(run, 1)) is not None:
        bill = await selling.order_for(run, person, 1000)
        await selling.pay_as(run, bill, "over")


async def node_forgets_what_is_confirmed(run: Run) -> None:
    """A replica that is behind, or shows no receipts, after a payment was final: looked at three times."""
    chain = await _be_honest(run)
    person = await _funded(run, 1)
    if person is None or not person.wallet:
        return
    paid = await paying.sign(run, person, person)
    await paying.present(run, paid, person, paid.request)
    for _ in range(2):
        chain.mine(3)
        await _look_at(run, paid.nonce)
    await paying.check(run)
    chain.behind, chain.lies = run.dice.choice(((4, ""), (8, ""), (0, NULL_RECEIPTS)))
    for _ in range(3):
        await run.world.live(5 * SECOND)
        await _look_at(run, paid.nonce)


async def node_takes_another_branch(run: Run) -> None:
    """After a payment was final: for few blocks it changes nothing, for many it is a reorganisation. When the
    node is back, so is the payment."""
    paid = await _paid_on_an_honest_chain(run, blocks=3)
    if paid is None:
        return
    await _look_at(run, paid.nonce)
    await paying.check(run)
    chain = paying.chain_of(run)
    chain.lies = OTHER_FORK
    for _ in range(2):
        await _look_at(run, paid.nonce)
        await paying.check(run)
        chain.mine(run.dice.choice((1, 2, MISSING)))
    await _look_at(run, paid.nonce)
    await paying.check(run)
    await _must_be_back(run, paid, "its node was on another branch")


async def node_forgets_what_has_expired(run: Run) -> None:
    """A payment is in its block, not deep enough to be final, and its time is over. The node has lost its
    memory for a block or two."""
    paid = await _paid_on_an_honest_chain(run, blocks=1)
    if paid is None:
        return
    chain = paying.chain_of(run)
    chain.lies = run.dice.choice((FORGETFUL, OTHER_FORK))
    await run.world.live(400 * SECOND)
    for _ in range(2):
        chain.mine()
        await _look_at(run, paid.nonce)
    await _must_be_back(run, paid, "its node had lost its memory")


async def _paid_on_an_honest_chain(run: Run, *, blocks: int) -> Paid | None:
    chain = await _be_honest(run)
    person = await _funded(run, 1)
    if person is None or not person.wallet:
        return None
    paid = await paying.sign(run, person, person)
    await paying.present(run, paid, person, paid.request)
    chain.mine(blocks)
    return paid


async def _must_be_back(run: Run, paid: Paid, why: str) -> None:
    chain = await _be_honest(run)
    for _ in range(2):
        chain.mine(MISSING)
        await _look_at(run, paid.nonce)
    await paying.check(run)
    state = run.extras["states"].get(paid.nonce)
    is_kept = chain.is_there(paid.nonce) and not (state == "failed" and chain.may_be_given_up(paid.nonce))
    assert state == "confirmed" or not is_kept, f"a payment is {state}, its chain has it: {why}"


async def _be_honest(run: Run) -> Chain:
    chain = paying.chain_of(run)
    chain.lies, chain.behind, chain.manner = "", 0, HONEST
    await paying.x402_of(run).rails.check_all()
    return chain


async def _look_at(run: Run, nonce: str) -> None:
    def find(conn: Connection) -> Payment | None:
        id = conn.execute(select(payments.c.id).where(payments.c.nonce == nonce)).scalar()
        return None if id is None else load(conn, id)

    payment = await run.world.read(find)
    if payment is not None:
        await paying.x402_of(run).checkout.follow(payment)


ACTS = {
    "newcomer_keeps_a_volume": (4, newcomer_keeps_a_volume),
    "child_buys_a_card": (4, child_buys_a_card),
    "child_is_revoked_after_a_payment_failed": (4, child_is_revoked_after_a_payment_failed),
    "child_ends_slowly": (4, child_ends_slowly),
    "child_acts_under_many_names": (4, child_acts_under_many_names),
    "cap_is_reached": (4, cap_is_reached),
    "nobody_is_there_while_it_runs": (4, nobody_is_there_while_it_runs),
    "it_runs_on_without_sats": (4, it_runs_on_without_sats),
    "suspended_wallet_pays": (4, suspended_wallet_pays),
    "invoice_is_overpaid": (4, invoice_is_overpaid),
    "node_forgets_what_is_confirmed": (4, node_forgets_what_is_confirmed),
    "node_takes_another_branch": (4, node_takes_another_branch),
    "node_forgets_what_has_expired": (4, node_forgets_what_has_expired),
}

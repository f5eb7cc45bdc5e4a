"""Acts of payment by x402: honest, replayed, claimed by strangers, on a chain that lies and reorganises."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from unittest import mock

from sqlalchemy import Connection, select
from x402.mechanisms.evm.exact import client as exact_client
from x402.schemas import PaymentRequired

from sandboxer.identity.sessions import wallets
from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.kernel.errors import SandboxerError, Unavailable
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose, load
from sandboxer.payments.tables import payments
from sandboxer.payments.x402.dependencies import X402
from sandboxer.payments.x402.presented import Wanted
from testchains.evm.anvil import address_of
from tests.money.model import selling
from tests.money.model.evm import HONEST, LIES, MANNERS, NETWORK, Chain
from tests.money.model.lives import pick
from tests.money.model.people import Person
from tests.money.model.schedule import Run
from tests.support.payments.x402 import headers_of, paying_client

# A payment that was signed, and no server has ever written down.
UNKNOWN = "unknown"
KEYS = {name: "0x" + f"{number:064x}" for number, name in enumerate(("ann", "bob", "cat"), 0xABC)}


@dataclass
class Paid:
    """A payment that somebody signed, and what became of it as the driver knows."""

    signer: Person
    # Who is credited for it.
    owner: Person
    sats: int
    nonce: str
    header: bytes
    request: str
    # It was final in the books while its chain had it, and the chain has not thrown it out since.
    was_final: bool = False
    # How often its node had denied it when it was last seen to be final, and the time before: a look that was
    # under way at one of them is over by the next.
    denials: tuple[int, int] = (0, 0)


def chain_of(run: Run) -> Chain:
    found: Chain = run.extras["evm"]
    return found


def paid_by(run: Run) -> list[Paid]:
    found: list[Paid] = run.extras.setdefault("paid", [])
    return found


def x402_of(run: Run) -> X402:
    found = run.world.platform.payments.x402
    assert found is not None
    return found


def draw_manners(dice: random.Random) -> tuple[str, str]:
    """How the node and the facilitator are when a schedule begins."""
    return dice.choice(("", "", *LIES)), dice.choice((HONEST, *MANNERS))


async def begin(run: Run) -> None:
    """Everybody has a wallet."""
    chain = chain_of(run)
    chain.lies, chain.manner = draw_manners(run.dice)
    now = run.world.platform.clock.now()
    people = [one for one in run.cast.people if one.name in KEYS]
    for person in people:
        person.wallet = KEYS[person.name]

    def link(conn: Connection) -> None:
        for person in people:
            wallets.link(conn, wallet_of(address_of(person.wallet)), person.account, now)

    await run.world.write(link)


async def sign(run: Run, signer: Person, owner: Person) -> Paid:
    sats = run.dice.choice((120, 2500, 9000))
    offers = [one for one in await x402_of(run).offers.make(sats) if str(one.network) == NETWORK]
    if not offers:
        raise Unavailable(why="the network is off")
    required = PaymentRequired(accepts=offers)
    with mock.patch.object(exact_client, "time", SimpleNamespace(time=run.world.host.truth.now().timestamp)):
        payload = await paying_client(signer.wallet).create_payment_payload(required)
    header = headers_of(payload)[0][1]  # type: ignore[arg-type]
    nonce = str(payload.payload["authorization"]["nonce"]).lower()
    request = f"v2:{owner.account}:{run.cast.number()}"
    paid = Paid(signer, owner, sats, nonce, header, request)
    paid_by(run).append(paid)
    run.extras.setdefault("documents", {})[nonce] = payload.model_dump(by_alias=True, mode="json")
    return paid


async def present(run: Run, paid: Paid, to: Person, request: str, *, by_name: bool = True) -> None:
    """`by_name`: whoever presents it says for whom; else it is for the wallet that signed."""
    checkout = x402_of(run).checkout
    presented = checkout.present([(b"payment-signature", paid.header)])
    assert presented is not None
    wanted = Wanted(
        purpose=Purpose.TOPUP,
        least_sats=1,
        account=to.account if by_name else None,
        request_hash=request,
        details={},
    )
    async with checkout.take(presented, wanted) as taken:
        if taken.is_new:
            # Nobody has sent it yet, so whoever holds it says whom it is for.
            paid.owner = to
            assert to.may_act, f"{to.name} is {to.status} and was sold sats"
            await checkout.settle(taken.payment)


def _payer(run: Run) -> Person:
    person = run.dice.choice([one for one in run.cast.people if one.wallet])
    run.touched = person.standing
    return person


async def top_up(run: Run) -> None:
    person = _payer(run)
    # With credentials, or by the wallet alone.
    by_name = run.dice.random() < 0.5
    paid = await sign(run, person, person)
    await present(run, paid, person, paid.request, by_name=by_name)


async def top_up_another(run: Run) -> None:
    """Anybody may pay for anybody, who then owns the sats."""
    signer, owner = _payer(run), pick(run)
    paid = await sign(run, signer, owner)
    await present(run, paid, owner, paid.request)


async def present_again(run: Run) -> None:
    """The same payment, by its payer or by somebody who would like to have it."""
    if not paid_by(run):
        return
    paid = run.dice.choice(paid_by(run))
    other = pick(run)
    run.touched = f"payment:{run.extras['states'].get(paid.nonce, UNKNOWN)}"
    if run.dice.random() < 0.4:
        await present(run, paid, paid.owner, paid.request)
    else:
        await present(run, paid, other, f"v2:{other.account}:x")


async def claim_what_lies_on_the_chain(run: Run) -> None:
    """Somebody carries a signed payment to the chain; somebody else, who copied it, says that it is his."""
    signer, thief = _payer(run), pick(run)
    paid = await sign(run, signer, signer)
    chain = chain_of(run)
    chain.send(run.extras["documents"][paid.nonce])
    chain.mine(run.dice.choice((1, 4)))
    await present(run, paid, thief, f"v2:{thief.account}:y")


def _touch_chain(run: Run) -> None:
    chain = chain_of(run)
    run.touched = "chain:" + (chain.lies or ("behind" if chain.behind else HONEST))


async def blocks_come(run: Run) -> None:
    _touch_chain(run)
    chain_of(run).mine(run.dice.choice((1, 3, 12)))
    await run.world.live(timedelta(seconds=run.dice.choice((3, 20))))


async def node_lies(run: Run) -> None:
    chain = chain_of(run)
    _touch_chain(run)
    chain.lies = run.dice.choice(("", "", *LIES))
    chain.behind = run.dice.choice((0, 0, 1, 3))
    if run.dice.random() < 0.5:
        chain.mine()
    await run.world.live(timedelta(seconds=run.dice.choice((5, 70))))


async def chain_reorganises(run: Run) -> None:
    _touch_chain(run)
    chain_of(run).reorganise(run.dice.choice((1, 3, 8)))
    await run.world.live(timedelta(seconds=run.dice.choice((5, 30))))


async def facilitator_changes(run: Run) -> None:
    run.touched = "facilitator:" + chain_of(run).manner
    chain_of(run).manner = run.dice.choice(MANNERS)


async def check(run: Run) -> None:
    """What is credited lies between what must be there and what may be."""
    chain = chain_of(run)
    found = await run.world.read(
        lambda conn: {
            row.nonce: row
            for row in conn.execute(select(payments.c.nonce, payments.c.state, payments.c.look_at))
        }
    )
    # One that the settler refused is watched for a day; after that it counts when it is presented again.
    run.extras["known"] = {n for n, row in found.items() if row.state != State.QUEUED.value or row.look_at}
    run.extras["states"] = {nonce: row.state for nonce, row in found.items()}
    run.extras["payment states"] = {f"payment:{row.state}" for row in found.values()}
    for person in run.cast.people:
        person.least_paid = person.most_paid = person.unsure = 0
    for paid in paid_by(run):
        row = found.get(paid.nonce)
        _follow(chain, paid, UNKNOWN if row is None else row.state)
        owner = paid.owner
        owner.least_paid += paid.sats if paid.was_final else 0
        if row is not None:
            owner.most_paid += paid.sats
            owner.unsure += 0 if paid.was_final else paid.sats
            owner.had_receipt = True
    selling.count(run)


def _follow(chain: Chain, paid: Paid, state: str) -> None:
    """Whether it is final, and may be what it is."""
    if chain.was_thrown_out(paid.nonce):
        paid.was_final = False
    elif state in (State.CONFIRMED.value, State.DOUBTED.value):
        assert chain.is_there(paid.nonce), "a payment is final that its chain does not have"
        paid.was_final = True
        if state == State.CONFIRMED.value:
            paid.denials = (paid.denials[1], len(chain.denials.get(paid.nonce, ())))
    elif paid.was_final:
        # One node, on another branch for so long, cannot be told from a chain that was reorganised.
        is_proven = chain.was_denied(paid.nonce, since=paid.denials[0], of_branch=True)
        assert is_proven, f"a payment that was final, and that its chain has, is {state}"
        paid.was_final = False


def _undecided(conn: Connection) -> list[Payment]:
    ids = conn.execute(select(payments.c.id).where(payments.c.look_at.is_not(None))).scalars()
    return [load(conn, id) for id in ids]


async def end(run: Run) -> None:
    """The chain is honest again, and time passes: then there is no doubt about anything."""
    chain = chain_of(run)
    chain.lies, chain.behind, chain.manner = "", 0, HONEST
    x402 = x402_of(run)
    await x402.rails.check_all()
    for _ in range(6):
        chain.mine(8)
        for payment in await run.world.read(_undecided):
            with suppress(SandboxerError):
                await x402.checkout.follow(payment)
        await run.world.live(timedelta(seconds=5))
    await check(run)
    for person in run.cast.people:
        person.least_paid = person.most_paid = 0
    for paid in paid_by(run):
        if chain.is_there(paid.nonce) and paid.nonce in run.extras["known"]:
            is_failed = run.extras["states"][paid.nonce] == State.FAILED.value
            is_lost = is_failed and chain.may_be_given_up(paid.nonce)
            paid.owner.least_paid += 0 if is_lost else paid.sats
            paid.owner.most_paid += 0 if is_lost else paid.sats
    selling.count(run)


ACTS = {
    "top_up": (8, top_up),
    "top_up_another": (2, top_up_another),
    "present_again": (3, present_again),
    "claim_what_lies_on_the_chain": (3, claim_what_lies_on_the_chain),
    "blocks_come": (6, blocks_come),
    "node_lies": (5, node_lies),
    "chain_reorganises": (3, chain_reorganises),
    "facilitator_changes": (3, facilitator_changes),
}

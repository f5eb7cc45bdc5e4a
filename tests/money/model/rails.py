"""Acts on rails that are not what they should be: a node that reads its chain, a relay that forgets, a chain
that is another. What strangers can cause there, what is concluded from it, and what is offered meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, select
from x402.http.utils import encode_payment_signature_header
from x402.schemas import PaymentPayload

from sandboxer.kernel.errors import ChainUnavailable, SandboxerError
from sandboxer.payments.invoices.use_cases import Order
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose, load
from sandboxer.payments.stacks.shop import ExactStacksClient
from sandboxer.payments.stacks.transactions import StacksKey
from sandboxer.payments.tables import invoice_chains, payments
from sandboxer.payments.x402.presented import Wanted
from tests.money.model import evm, nodes, paying
from tests.money.model.lives import pick
from tests.money.model.nodes import CoreNode, LitecoinIndex, StacksRelay
from tests.money.model.people import Person
from tests.money.model.schedule import Run
from tests.money.model.selling import public_id

ORDERS = 3


@dataclass
class Relayed:
    """A payment by Stacks: its owner, how much, and whether it was final in the books."""

    owner: Person
    sats: int
    id: str
    was_final: bool = False


def core_of(run: Run) -> CoreNode:
    found: CoreNode = run.extras["core"]
    return found


def relay_of(run: Run) -> StacksRelay:
    found: StacksRelay = run.extras["relay"]
    return found


def relayed(run: Run) -> list[Relayed]:
    found: list[Relayed] = run.extras.setdefault("relayed", [])
    return found


@contextmanager
def around(run: Run, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """These settings, and those that name all three, while they listen."""
    run.extras["core"], run.extras["relay"] = core, relay = CoreNode(), StacksRelay()
    run.extras["ltc"] = index = LitecoinIndex()
    x402 = settings["x402"]
    networks = [*x402["networks"], relay.settings]
    try:
        chains = {**core.settings, **index.settings}
        yield {**settings, "x402": {**x402, "networks": networks}, "chains": chains}
    finally:
        core.close()
        index.close()
        relay.close()


# -- a node that reads its chain ---------------------------------------------------------------------------


async def strangers_order(run: Run) -> None:
    """None of them makes the node read, and none that is refused takes an address with it."""
    node = core_of(run)
    node.manner = run.dice.choice((nodes.HONEST, nodes.SCANNING, nodes.DOWN))
    person, past = pick(run), len(node.past)
    run.touched = f"node:{node.manner}"
    public = (await public_id(run, person)) if run.dice.random() < 0.5 else None
    taken, given = await run.world.read(_indexes), 0
    for number in range(ORDERS):
        wish = Order(
            asset="BTC", asked_by=f"stranger {run.cast.number()}-{number}", sats=1000, account=public
        )
        try:
            await run.world.platform.payments.invoices.create(wish)
            given += 1
        except SandboxerError:
            continue
    assert len(node.past) == past, f"orders of strangers had the node do {node.past[past:]}"
    # Once, where the first address was lost with a server: such a wallet looks like one that was lost itself.
    assert node.regained <= 1, f"orders of strangers had the node read the past {node.regained} times"
    if not run.world.is_dead:
        burnt = await run.world.read(_indexes) - taken - given
        assert burnt <= 1, f"{ORDERS} orders, {given} served, {burnt} addresses lost"
    node.manner = nodes.HONEST


def _indexes(conn: Connection) -> int:
    found = conn.execute(select(invoice_chains.c.next_index).where(invoice_chains.c.chain == "BTC")).scalar()
    return int(found or 0)


# -- a relay that forgets ----------------------------------------------------------------------------------


async def pay_by_relay(run: Run) -> None:
    person = pick(run)
    x402, sats = paying.x402_of(run), run.dice.choice((400, 3000))
    offers = [one for one in await x402.offers.make(sats) if str(one.network).startswith("stacks:")]
    if not offers:
        return
    number = run.cast.number()
    client = ExactStacksClient(StacksKey.from_hex(f"{number + 7:064x}"), lambda _: 0)
    payload = PaymentPayload(payload=client.create_payment_payload(offers[0]), accepted=offers[0])
    header = encode_payment_signature_header(payload).encode()
    presented = x402.checkout.present([(b"payment-signature", header)])
    assert presented is not None
    wanted = Wanted(
        purpose=Purpose.TOPUP,
        least_sats=1,
        account=person.account,
        request_hash=f"v2:{person.account}:{number}",
        details={},
    )
    async with x402.checkout.take(presented, wanted) as taken:
        assert person.may_act, f"{person.name} is {person.status} and was sold sats"
        relayed(run).append(Relayed(person, taken.payment.sats, taken.payment.id))
        await x402.checkout.settle(taken.payment)
    await _follow(run, relayed(run)[-1])


async def _follow(run: Run, one: Relayed) -> None:
    """The relay says `broadcast`, then that it is in a block, and has forgotten it the day after."""
    relay, x402 = relay_of(run), paying.x402_of(run)
    relay.manner = nodes.HONEST
    try:
        after = await x402.checkout.follow(await _load(run, one))
    except ChainUnavailable as error:
        raise AssertionError(f"the relay said `broadcast` and was not understood: {error}") from error
    assert after.state is State.MEMPOOL, f"a payment that the relay broadcast is {after.state.value}"
    relay.mine()
    after = await x402.checkout.follow(after)
    one.was_final = after.state is State.CONFIRMED
    assert one.was_final, f"a payment that the relay has seen in a block is {after.state.value}"
    if run.dice.random() < 0.7:
        relay.manner = nodes.FORGOTTEN
    # What the payment wakes is awake before anybody counts who runs through these days.
    await run.world.calm()
    asked = relay.asked
    await run.world.advance(timedelta(days=2))
    await run.world.calm()
    assert relay.asked <= asked + 3, "a relay that names no depth is asked for ever"


async def _load(run: Run, one: Relayed) -> Payment:
    return await run.world.read(lambda conn: load(conn, one.id))


async def check(run: Run) -> None:
    """After `paying.check`, which begins the sums."""

    def states(conn: Connection) -> dict[str, str]:
        return {row.id: row.state for row in conn.execute(select(payments.c.id, payments.c.state))}

    found = await run.world.read(states)
    for one in relayed(run):
        state = found.get(one.id)
        one.was_final |= state == State.CONFIRMED.value
        if one.was_final:
            # What a relay has forgotten is paid all the same.
            assert state == State.CONFIRMED.value, f"a payment was final and is {state}: the relay forgot it"
            one.owner.least_paid += one.sats
        if state is not None:
            one.owner.most_paid += one.sats
            one.owner.unsure += 0 if one.was_final else one.sats
            one.owner.had_receipt = True


# -- a chain that is another -------------------------------------------------------------------------------


async def node_is_of_another_chain(run: Run) -> None:
    """At a start: the rail is off with a reason, nothing is offered on it; and on again when it is right."""
    chain = paying.chain_of(run)
    chain.lies, chain.behind = "", 0
    chain.pretends = run.dice.choice(evm.PRETENCES)
    run.touched = f"chain:{chain.pretends}"
    try:
        await run.world.close()
        await run.world.open()
        x402 = paying.x402_of(run)
        why = x402.ways.why_off(evm.NETWORK)
        offered = [str(one.network) for one in await x402.offers.make(500)]
        assert why, f"the node has {chain.pretends}, and payments on it are on"
        assert evm.NETWORK not in offered, f"the node has {chain.pretends}, and is offered"
    finally:
        # The node is put right, also where the server dies in the middle of this.
        chain.pretends = ""
    await x402.rails.check_all()
    assert x402.ways.why_off(evm.NETWORK) is None, "the node is right, and payments on it are off"


ACTS = {
    "strangers_order": (4, strangers_order),
    "pay_by_relay": (4, pay_by_relay),
    "node_is_of_another_chain": (4, node_is_of_another_chain),
}

"""Acts through the HTTP edge, by people without credentials, and acts of sharing: what strangers are told and
what they can have written."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from sqlalchemy import Connection, func, select

from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import Wanted
from sandboxer.edges.http.app import create_app
from sandboxer.kernel.errors import NotFound
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.store.metadata import metadata
from tests.money.model import evm, lives, paying
from tests.money.model.lives import OPERATOR, pick
from tests.money.model.schedule import Run
from tests.money.model.selling import public_id

ROUNDS = 3
UNKNOWN = "sbx_" + "0" * 26
# Of a loop of the server itself: what a request writes is written when it is answered.
_PRICED = (
    ("/v1/sandboxes", {}),
    ("/v1/topups", {"sats": 500}),
    ("/v1/keys/purchase", {"tier": 1, "months": 1}),
)


@asynccontextmanager
async def _edge(run: Run) -> AsyncIterator[httpx.AsyncClient]:
    """The whole app of the server that runs now, called without a socket."""
    platform = run.world.platform
    known = run.extras.get("app")
    if known is None or known[0] is not platform:
        known = run.extras["app"] = (platform, create_app(platform))
    transport = httpx.ASGITransport(known[1])
    async with httpx.AsyncClient(transport=transport, base_url=platform.settings.url) as http:
        yield http


def _rows(conn: Connection) -> dict[str, int]:
    return {
        table.name: conn.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
    }


async def strangers_ask_for_prices(run: Run) -> None:
    """A 402 costs no row, however many ask. What grows each time grows by the asking."""
    run.touched = "stranger"
    grown: set[str] | None = None
    async with _edge(run) as http:
        for _ in range(ROUNDS):
            before = await run.world.read(_rows)
            said = [(await http.post(path, json=body)).status_code for path, body in _PRICED]
            after = await run.world.read(_rows)
            assert not {200, 201} & set(said), f"a stranger was served: {said}"
            here = {name for name in after if after[name] > before[name]}
            grown = here if grown is None else grown & here
    assert not grown, f"each 402 to a stranger writes to {sorted(grown or ())}"


async def strangers_ask_for_more_time(run: Run) -> None:
    """For somebody's sandbox and for one that never was, without a payment and with a copied one."""
    owners = [
        thing
        for thing in run.cast.things.values()
        if thing.owner.wallet and thing.owner.may_act and thing.state in ("ready", "active", "frozen")
    ]
    if not owners:
        payer = run.dice.choice([one for one in run.cast.people if one.wallet])
        await lives.pay_in(run, payer, 3000)
        await lives.create_for(run, payer, "2h")
        await run.oracle.look()
        owners = [thing for thing in run.cast.things.values() if thing.owner is payer]
    thing = run.dice.choice(owners)
    run.touched = f"sandbox:{thing.state}"
    copied = await _sent_by(run, thing.owner)
    async with _edge(run) as http:
        for headers in ({}, copied):
            reported = [
                _shown(await http.patch(_ttl(id), json={"duration": "1m"}, headers=headers), id)
                for id in (thing.id, UNKNOWN)
            ]
            if all(status < 500 for status, _ in reported):
                assert reported[0] == reported[1], f"a stranger is told which sandboxes there are: {reported}"


def _ttl(id: str) -> str:
    return f"/v1/sandboxes/{id}/ttl"


async def _sent_by(run: Run, person: lives.Person) -> dict[str, str]:
    """A payment of his wallet that was taken for something else, as anybody may have copied it."""
    chain = paying.chain_of(run)
    chain.lies, chain.behind, chain.manner = "", 0, evm.HONEST
    await paying.x402_of(run).rails.check_all()
    paid = await paying.sign(run, person, person)
    await paying.present(run, paid, person, paid.request)
    return {"payment-signature": paid.header.decode()}


def _shown(answer: httpx.Response, id: str) -> tuple[int, tuple[str, ...]]:
    """What tells one answer from another: its status and its reasons."""
    text = answer.text.replace(id, "<id>")
    return answer.status_code, tuple(re.findall(r'"(?:reason|code|type)": ?"([^"]*)"', text))


async def images_are_shared(run: Run) -> None:
    """With an account that does not exist, and with one by its public id; given away likewise."""
    platform, person = run.world.platform, pick(run)
    image, sharing = await _image(run), platform.artifacts.image_sharing
    nobody = run.dice.choice(("acc_nobody", "pub_" + "0" * 26))
    for give in (sharing.grant, sharing.offer):
        try:
            await give(image.id, nobody, OPERATOR)
        except NotFound:
            continue
        raise AssertionError(f"an image was given to {nobody}, which does not exist")
    if person.status == "closed":
        return
    public = await public_id(run, person)
    assert person.account in await sharing.grant(image.id, public, OPERATOR), "a grant by public id is lost"
    assert (await platform.artifacts.images.get(image.id, person.caller)).id == image.id
    await sharing.offer(image.id, public, OPERATOR)
    await sharing.offer(image.id, None, OPERATOR)
    await sharing.revoke(image.id, public, OPERATOR)


async def _image(run: Run) -> PublishedImage:
    """The operator's own, made once for a schedule."""
    images = run.world.platform.artifacts.images
    if (id := run.extras.get("image")) is not None:
        return await images.get(id, OPERATOR)
    made = await creation.create(run.world.platform.sandboxes, CreateRequest(ttl="24h"), OPERATOR)
    image = await images.publish_sandbox(made.id, Wanted(name="model"), OPERATOR)
    await lifetime.destroy(run.world.platform.sandboxes, made.id, OPERATOR)
    run.extras["image"] = image.id
    return image


ACTS = {
    "strangers_ask_for_prices": (4, strangers_ask_for_prices),
    "strangers_ask_for_more_time": (4, strangers_ask_for_more_time),
    "images_are_shared": (4, images_are_shared),
}

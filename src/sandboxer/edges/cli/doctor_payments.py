"""Which ways to be paid are off, and why: told by the platform that runs, or found by asking the nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx

from sandboxer.backends.contract import Lack
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.contract import Checkable
from sandboxer.payments.chains.opening import open_chains
from sandboxer.payments.rails import Rails, Standings
from sandboxer.settings import Settings
from sandboxer.store.lock import is_held

DEADLINE_S = 8.0
REMEDY = "mend the node or the settings; the platform looks again by itself within a minute"


def payments_off(settings: Settings) -> Iterator[Lack]:
    is_served = settings.state_dir.exists() and is_held(settings.state_dir)
    if is_served:
        yield from _told(settings)
    elif settings.chains:
        yield from asyncio.run(_asked(settings))


def _told(settings: Settings) -> Iterator[Lack]:
    try:
        url = str(json.loads(settings.owner_file.read_text())["url"])
        answer = httpx.get(f"{url}/v1/pricing", timeout=DEADLINE_S, trust_env=False)
        prices: dict[str, Any] = answer.json()
    except (OSError, ValueError, KeyError, httpx.HTTPError):
        # That it does not answer is told already.
        return
    rails = [(each["network"], each) for each in prices.get("networks", ())]
    rails += [(each["coin"], each) for each in prices.get("coins", ())]
    for name, standing in rails:
        if not standing["is_on"]:
            yield _lack(name, str(standing.get("reason")))


async def _asked(settings: Settings) -> list[Lack]:
    """Only whether the nodes are the right ones: whether their wallets are, is seen at the start, which makes
    a missing one."""
    standings = Standings()
    try:
        async with open_chains(settings.chain_plans) as chains:
            checks = {code: each.why_wrong for code, each in chains.items() if isinstance(each, Checkable)}
            await Rails(standings, checks, SystemClock()).check_all()
    except InvalidRequest as error:
        return [_lack("invoices", str(error))]
    return [_lack(code, why) for code in settings.chains if (why := standings.why_off(code)) is not None]


def _lack(rail: str, why: str) -> Lack:
    return Lack(what=f"payments in {rail}", why=why, remedy=REMEDY)

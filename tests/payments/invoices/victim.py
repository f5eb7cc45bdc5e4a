"""A shop in a process of its own that kills itself, as `kill -9` would, at a step that its parent names.

Steps are counted around every write: 1 is before the first, 2 after it is committed, 3 before the second, …
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import read_account_key
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.store.engine import Store, open_store
from tests.support.payments.shop import open_shop


def live(plan: dict[str, Any], pipe: Connection) -> None:
    pipe.send(asyncio.run(_act(plan)))


async def _act(plan: dict[str, Any]) -> str:
    """What it has to say at the end: the id of what it ordered."""
    network = network_of("LTC", "regtest")
    chain = CoreRpc(
        network,
        plan["node"],
        user=plan["user"],
        password=plan["password"],
        keys=read_account_key(plan["xpub"], network),
    )
    store = open_store(plan["database"])
    shop = open_shop(store, chain)
    shop.clock.moment = datetime.fromisoformat(plan["now"])
    _make_mortal(store, plan["die_at"])
    if plan["act"] == "order":
        said = (await shop.order(**plan["order"])).invoice.id
    else:
        said = ""
        for _ in range(2):
            await shop.look(after=timedelta(seconds=10))
    await store.close()
    await chain.close()
    return said


def _make_mortal(store: Store, die_at: int) -> None:
    write, step = store.write, 0

    def pass_step() -> None:
        nonlocal step
        step += 1
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def mortal(fn: Any) -> Any:
        pass_step()
        done = await write(fn)
        pass_step()
        return done

    store.write = mortal  # type: ignore[method-assign]

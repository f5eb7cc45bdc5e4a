"""Two shops that take x402 payments on one local chain, each a process of its own.

    python -m bench.shops ours|bare STATE_DIR RPC_URL ASSET

`ours` is the platform (its sandboxes scripted: what is compared is the way of a payment); `bare` is the
official package's own middleware and facilitator before a route that does nothing. Prints its port when it
serves, and ends with its standard input. For the bench only.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvicorn
import uvloop
from fastapi import FastAPI
from x402 import x402Facilitator, x402ResourceServer
from x402.http.middleware.fastapi import payment_middleware
from x402.http.types import PaymentOption, RouteConfig
from x402.mechanisms.evm.exact.register import register_exact_evm_facilitator, register_exact_evm_server
from x402.mechanisms.evm.signers import FacilitatorWeb3Signer
from x402.schemas import AssetAmount

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.edges.http.server import Server, config, listen
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from testchains.evm.anvil import KEYS, NETWORK, address_of

SATS = 1000
ATOMIC = 1_000_000
DOMAIN = {"name": "Test Dollar", "version": "2"}


async def ours(state_dir: Path, rpc_url: str, asset: str) -> None:
    network = {
        "network": NETWORK,
        "pay_to": address_of(KEYS[1]),
        "rpc_url": rpc_url,
        "assets": [{"code": "USDC", "id": asset, **DOMAIN}],
    }
    settings = Settings.model_validate(
        {
            "state_dir": state_dir,
            "host": "127.0.0.1",
            "port": 0,
            "log_level": "warning",
            "limit_address": 1_000_000,
            "x402": {"networks": [network]},
            "x402_signer_key": KEYS[2],
            "fixed_rates": {"BTC": "100000", "USDC": "1"},
        }
    )
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        listening = listen("127.0.0.1", 0)
        up = asyncio.Event()
        server = Server(config(create_app(platform), settings), up.set)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listening]))
            await up.wait()
            print(listening.getsockname()[1], flush=True)
            await asyncio.to_thread(sys.stdin.read)
            server.should_exit = server.force_exit = True


async def bare(rpc_url: str, asset: str) -> None:
    facilitator = x402Facilitator()
    register_exact_evm_facilitator(facilitator, FacilitatorWeb3Signer(KEYS[3], rpc_url), NETWORK)
    selling = x402ResourceServer(facilitator)
    register_exact_evm_server(selling, NETWORK)
    price = AssetAmount(amount=str(ATOMIC), asset=asset, extra=dict(DOMAIN))
    option = PaymentOption(scheme="exact", pay_to=address_of(KEYS[1]), price=price, network=NETWORK)
    app = FastAPI()
    app.middleware("http")(payment_middleware({"POST /v1/topups": RouteConfig(accepts=option)}, selling))

    @app.post("/v1/topups", status_code=201)
    async def nothing() -> dict[str, bool]:
        return {"paid": True}

    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(app, http="httptools", lifespan="off", log_level="warning", access_log=False)
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listening]))
        print(listening.getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True


def main() -> None:
    which, state_dir, rpc_url, asset = sys.argv[1:]
    uvloop.run(ours(Path(state_dir), rpc_url, asset) if which == "ours" else bare(rpc_url, asset))


if __name__ == "__main__":
    main()

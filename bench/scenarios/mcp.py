"""What a tool costs over the HTTP call that it makes: MCP's official client beside our own, in turn.

Both speak to one platform whose sandboxes are scripted, from one process, over connections that are kept: by
HTTP in both eras of the protocol, and by the stdio server, which is a process of its own. What is held to the
bar is the difference of each round, in milliseconds, the official client's own time included.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.scenarios.signed import doors
from sandboxer.kernel.program import late
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.credentials import Credentials

A_ROUND = 20
WARM_UP = 3
BAR = Bar(text="≤ 5 ms over the HTTP call it makes", limit=5.0)
Act = Callable[[], Awaitable[object]]
# Only where the bench is asked for it: a platform of the server has it, the client alone has not.
_mcp, _http = late("mcp"), late("mcp.client.streamable_http")
_web = late("httpx2")


def mcp(folder: Path, rounds: int) -> Iterator[Row | Samples | Skipped]:
    if find_spec("mcp") is None:
        yield Skipped("tools", "mcp is not installed")
        return
    state_dir = folder / "mcp"
    state_dir.mkdir()
    with doors(state_dir) as (port, _):
        content = json.loads((state_dir / "owner.json").read_text())
        owner = Credentials(content["public_key"], content["secret_key"], f"http://127.0.0.1:{port}")
        wire = Wire("127.0.0.1", port, owner)
        made = wire.ask("POST", "/v1/sandboxes", {"profile": "profile.agent-dev"}).json()["id"]
        token = wire.ask("POST", f"/v1/keys/{owner.public_key}/bearer").json()["bearer_token"]
        wire.close()
        yield from asyncio.run(_compared(owner.url, token, made, rounds))


async def _compared(url: str, token: str, sandbox_id: str, rounds: int) -> list[Row | Samples]:
    where = {"sandbox_id": sandbox_id}
    calls: Mapping[str, dict[str, Any]] = {"getSandbox": where, "runCommand": {**where, "command": "true"}}
    found: list[Row | Samples] = []
    async with AsyncExitStack() as opened:
        ours = await opened.enter_async_context(AsyncSandboxer(url=url, api_key=token))
        hosts = {
            "HTTP, 2026-07-28": await _by_http(opened, url, token, "auto"),
            "HTTP, 2025-11-25": await _by_http(opened, url, token, "legacy"),
            "stdio": await _by_stdio(opened, url, token),
        }
        for name, arguments in calls.items():
            acts: dict[str, Act] = {"plain": lambda n=name, a=arguments: ours.tools.run(n, a)}  # type: ignore[misc]
            for way, host in hosts.items():
                acts[way] = lambda h=host, n=name, a=arguments: h.call_tool(n, a)  # type: ignore[misc]
            times = await _in_turn(acts, rounds)
            plain = times.pop("plain")
            found.append(Samples(f"{name} by our own client", "ms", plain))
            for way, taken in times.items():
                over = tuple(one - other for one, other in zip(taken, plain, strict=True))
                subject = Samples(f"{name} over {way}, less the plain call", "ms", over)
                found.append(
                    Row(figure=f"tool {name} by MCP ({way})", subject=subject, baseline=None, bar=BAR)
                )
    return found


async def _in_turn(acts: Mapping[str, Act], rounds: int) -> dict[str, tuple[float, ...]]:
    times: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(rounds + WARM_UP):
        for name, act in acts.items():
            began = time.perf_counter()
            for _ in range(A_ROUND):
                answer: Any = await act()
                if answer.is_error:
                    raise RuntimeError(f"{name} answered {answer}")
            if number >= WARM_UP:
                times[name].append((time.perf_counter() - began) / A_ROUND * 1000)
    return {name: tuple(values) for name, values in times.items()}


async def _by_http(opened: AsyncExitStack, url: str, token: str, era: str) -> Any:
    head = {"authorization": f"Bearer {token}"}
    web = await opened.enter_async_context(_web.AsyncClient(headers=head, timeout=60))
    carried = _http.streamable_http_client(f"{url}/mcp", http_client=web)
    return await opened.enter_async_context(_mcp.Client(carried, mode=era))


async def _by_stdio(opened: AsyncExitStack, url: str, token: str) -> Any:
    server = _mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "sandboxer.edges.cli.main", "mcp"],
        env={"SANDBOXER_URL": url, "SANDBOXER_API_KEY": token},
    )
    return await opened.enter_async_context(_mcp.Client(server))

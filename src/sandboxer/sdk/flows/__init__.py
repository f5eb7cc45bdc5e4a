"""The flows of the self-sandbox algorithm as checks of a platform, for whoever has its address and a key.

`sandboxer flows check URL` runs them; docs/guides/flows.md says how to read them. `tests/flows` runs them
against platforms of its own, and against platforms that lie.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.exchange import Payer
from sandboxer.sdk.flows import agents, disks, entry, payment, walls, work
from sandboxer.sdk.flows.suite import Bench, Check, CheckResult, Flow, Verdict, open_bench, run_check

# In the order of the paper, which names no second flow: here it is what one pays for, prices and keys.
FLOWS: Sequence[Flow] = (
    entry.discovery,
    entry.provision,
    payment.flow,
    entry.authentication,
    work.tools,
    work.execution,
    work.sessions,
    work.services,
    disks.snapshots,
    disks.images,
    walls.introspection,
    walls.trust,
    agents.inception,
    agents.compatibility,
)


async def iterate_checks(
    client: AsyncSandboxer,
    *,
    only: Collection[int] = (),
    most_sats: int = 500,
    payer: Payer | None = None,
) -> AsyncGenerator[CheckResult, None]:
    """Runs the checks in turn, each with things of its own, and yields each result as it comes.

    `only` names flows. `payer` pays where a flow is about paying. No check begins once `most_sats` are spent.
    """
    async with open_bench(client, most_sats=most_sats, payer=payer) as bench:
        for flow in FLOWS:
            for check in flow.checks if not only or flow.number in only else ():
                yield await run_check(flow, check, bench)


__all__ = ["FLOWS", "Bench", "Check", "CheckResult", "Flow", "Verdict", "iterate_checks", "run_check"]

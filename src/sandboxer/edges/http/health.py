"""What the probes found, as anyone may know it: which part is ill, and not why."""

from __future__ import annotations

from typing import Literal

from sandboxer.wire.host import Health
from sandboxer.wiring import Platform

Check = Literal["ok", "failing"]


async def look(platform: Platform) -> Health:
    found = await platform.probes.look()
    checks: dict[str, Check] = {name: "ok" if why is None else "failing" for name, why in found.items()}
    for name in sorted(platform.backends):
        # What it last said: asking anew is slow, and for the owner (GET /v1/host).
        known = platform.sandboxes.room.known_fingerprints.get(name)
        is_able = known is None or known.healthy
        is_whole = all(check == "ok" for part, check in checks.items() if part.startswith(f"{name}/"))
        checks[name] = "ok" if is_able and is_whole else "failing"
    is_well = all(check == "ok" for check in checks.values())
    # A network that cannot be paid on is shown (why: GET /v1/pricing), and keeps nobody from being served.
    if (x402 := platform.payments.x402) is not None:
        for way in x402.ways:
            checks[f"x402/{way.network}"] = "ok" if x402.ways.why_off(way.network) is None else "failing"
    for coin, why in platform.payments.invoices.why_off().items():
        checks[f"invoices/{coin}"] = "ok" if why is None else "failing"
    # A hint that stops nobody: where the host's wall clock was set, the server goes on by its own time.
    checks["clock"] = "ok" if platform.timekeeper.trouble is None else "failing"
    return Health(status="ok" if is_well else "degraded", checks=checks)

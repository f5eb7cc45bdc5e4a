"""A service that its account can no longer pay for, on real walls: it stops, and is back when one pays."""

from __future__ import annotations

import pytest

from sandboxer.money.verification import verify
from tests.support.http.charging import becomes, good, paid
from tests.support.http.served import Served

__all__ = ["paid"]
COUNTS = """
import http.server, os
class Counts(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        count = int(open("count").read()) + 1 if os.path.exists("count") else 1
        open("count", "w").write(str(count))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(count).encode())
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Counts).serve_forever()
"""


@pytest.mark.timeout(180)
async def test_a_service_run_dry_stops_and_is_back_with_its_disk_when_someone_pays(
    paid: Served,
) -> None:
    agent = await paid.stranger("agent")
    await good(
        paid.client, "POST", "/v1/accounts/agent/adjust", {"sats": 1000, "id": "first", "reason": "a gift"}
    )
    wanted = {
        "name": "counts",
        "command": "exec python3 app.py",
        "files": [{"path": "app.py", "content": COUNTS}],
        "resources": {"memory_mb": 256, "disk_mb": 128},
        "health": {"interval_s": 0.5},
    }
    made = await good(agent, "POST", "/v1/services", wanted)
    assert (made["state"], made["rate_msats_per_s"] > 0) == ("running", True), made
    ports = f"/v1/sandboxes/{made['sandbox_id']}/ports/8080"
    assert (await agent.get(f"{ports}/")).text == "1"
    box = f"/v1/sandboxes/{made['sandbox_id']}"
    await becomes(agent, box, "reaped", 60)
    stopped = await becomes(agent, "/v1/services/counts", "stopped", 30)
    assert "lack of sats" in stopped["reason"]
    closed = await agent.get(f"{ports}/")
    assert closed.status_code in (502, 503), closed.text
    refused = await agent.post("/v1/services/counts/start")
    assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credit"), refused.text
    rescue = {"sats": 20_000, "id": "rescue", "reason": "wake up"}
    await good(paid.client, "POST", "/v1/accounts/agent/adjust", rescue)
    back = await becomes(agent, "/v1/services/counts", "running", 60)
    assert (back["run"], back["sandbox_id"]) == (2, made["sandbox_id"])
    assert (await agent.get(f"{ports}/")).text == "2", "its disk was kept, and nobody started it by hand"
    removed = await good(agent, "DELETE", "/v1/services/counts")
    assert removed["state"] == "removed"
    assert (await paid.platform.store.read(verify)).is_whole

"""Flow 12: an agent chooses how far a sandbox is trusted; what runs inside cannot choose again."""

from __future__ import annotations

from tests.access.egress.world import site
from tests.support.egress_inside import allow, fetch, names, run, served, world  # noqa: F401
from tests.support.flows import Charging
from tests.support.http.served import Served

# Every way out that a program might try by itself.
RAW = """
import socket
for family, address in ((socket.AF_INET, "93.184.215.14"), (socket.AF_INET, "169.254.169.254")):
    try:
        with socket.socket(family) as out:
            out.settimeout(3)
            out.connect((address, 80))
            out.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % address.encode())
            answer = out.recv(1000)
        print("reached" if b"hello" in answer else answer[:12], address)
    except OSError as error:
        print(type(error).__name__)
"""
LISTENS = """python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))'"""


async def test_zero_reaches_nothing_and_semi_what_its_rules_allow(served: Served) -> None:
    zero, semi = await served.sandbox(), await served.sandbox(trust="semi")
    assert (await served.client.get(zero)).json()["trust"] == "zero"
    async with site() as web:
        for path in (zero, semi):
            assert "reached" not in await run(served, path, "python3", "-c", RAW)
        assert "hello" not in await fetch(served, zero, "http://example.com/")
        # There is nothing to allow where no way out exists, and trust is chosen once.
        rules = {"rules": [{"action": "allow", "host": "example.com"}]}
        assert (await served.client.send("PUT", f"{zero}/egress", body=rules)).status_code == 409
        assert (await served.client.send("PATCH", zero, body={"trust": "semi"})).status_code in (405, 422)

        assert (await fetch(served, semi, "http://example.com/")).startswith("403 ")
        await allow(served, semi, "example.com", "inside.example.com")
        assert await fetch(served, semi, "http://example.com/") == "hello\n"
        # A rule by name opens no private network behind it.
        assert (await fetch(served, semi, "http://inside.example.com/")).startswith("403 ")
        answer = await served.client.post(f"{semi}/egress/explain", {"url": "http://other.com/"})
        assert (answer.status_code, answer.json()["allowed"]) == (200, False)
        assert len(web.heads) == 1


async def test_what_is_inside_is_reached_from_outside_at_both_levels(served: Served) -> None:
    serve = "echo inside > /workspace/a.txt && cd /workspace && exec python3 -m http.server 8000"
    for path in (await served.sandbox(), await served.sandbox(trust="semi")):
        begun = await served.client.post(f"{path}/processes", {"command": serve})
        assert begun.status_code == 201, begun.text
        waiting = (
            "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'; do :; done"
        )
        await run(served, path, "sh", "-c", waiting + " 2>/dev/null")
        answer = await served.client.get(f"{path}/ports/8000/a.txt")
        assert (answer.status_code, answer.text) == (200, "inside\n")


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(12)

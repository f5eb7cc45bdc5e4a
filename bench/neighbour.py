"""`python -m bench.neighbour`: a tenant who runs `echo` over and over, and says how long each took.

On a real network it would run on another machine, and never wait for this one's processors: it comes first
here, before the server. Told on its input, one line of JSON for each stretch; answers with one line for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bench.client import Wire
from bench.scenarios.life import ECHO, timed
from sandboxer.sdk.credentials import Credentials

NICENESS = -19
# Not the abuser's: what is counted by address is counted for each of them.
ADDRESS = "127.0.0.2"


def stretch(
    wire: Wire, target: str, seconds: float, least: int, pause_s: float = 0.0
) -> dict[str, list[float]]:
    """Milliseconds of each `exec` and of a look at the sandbox after it; at least so long and so many."""
    execs: list[float] = []
    looks: list[float] = []
    ends = time.monotonic() + seconds
    while len(execs) < least or time.monotonic() < ends:
        execs.append(timed(lambda: wire.ask("POST", f"{target}/exec", ECHO).json())[0])
        looks.append(timed(lambda: wire.ask("GET", target).json())[0])
        time.sleep(pause_s)
    return {"execs": execs, "looks": looks}


def main() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists():
        # Its session is its own.
        autogroup.write_text(str(NICENESS))
    request = json.loads(sys.stdin.readline())
    key = Credentials(request["public_key"], request["secret_key"], f"http://127.0.0.1:{request['port']}")
    wire = Wire("127.0.0.1", request["port"], key, address=ADDRESS)
    target = f"/v1/sandboxes/{wire.ask('POST', '/v1/sandboxes', {}).json()['id']}"
    stretch(wire, target, 0.0, request.get("warm_up", 50))
    print("ready", flush=True)
    for line in sys.stdin:
        # A server may end a connection on which nothing was asked while the abuser prepared itself.
        wire.close()
        wire = Wire("127.0.0.1", request["port"], key, address=ADDRESS)
        stretch(wire, target, 0.0, 5)
        print(json.dumps(stretch(wire, target, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

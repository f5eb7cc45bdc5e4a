"""What it costs to ask from inside: a call by the socket of a sandbox, and creates eight layers deep.

A program in the sandbox times its own calls over one kept-alive connection, as the client outside does over
loopback. Every layer is created from inside the one above.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running

LAYERS = 8
# Calls of a round: long enough to time, short enough that both sides meet the same load.
A_ROUND = 50
SMALL = {"resources": {"vcpus": 0.25, "memory_mb": 64, "disk_mb": 16, "pids": 64}, "ttl": "10m"}

# Runs inside: asks the same thing so many times, and prints the milliseconds of each and the last answer.
PROGRAM = r"""
import json, socket, sys, time
asked = json.load(sys.stdin)
body = b"" if asked["body"] is None else json.dumps(asked["body"]).encode()
head = f"{asked['method']} {asked['path']} HTTP/1.1\r\nHost: sandboxer\r\nContent-Length: {len(body)}\r\n"
request = head.encode() + (b"Content-Type: application/json\r\n\r\n" if body else b"\r\n") + body
line = socket.socket(socket.AF_UNIX)
line.connect("/run/sandboxer/api.sock")
reader = line.makefile("rb")
times = []
for _ in range(asked["times"]):
    start = time.perf_counter()
    line.sendall(request)
    status = int(reader.readline().split()[1])
    fields = dict(row.decode().lower().split(":", 1) for row in iter(reader.readline, b"\r\n"))
    answer = reader.read(int(fields["content-length"]))
    times.append((time.perf_counter() - start) * 1000)
    if status >= 300:
        sys.exit(f"{status}: {answer.decode()}")
print(json.dumps([times, json.loads(answer)]))
"""


def inception(running: Running, rounds: int) -> Iterator[Row | Samples]:
    wire = running.wire()
    # The first of a server's life imports what it needs.
    _destroy(wire, _layers(wire, 2)[0][0])
    yield from _relay(wire, rounds)
    yield from _depth(wire, max(5, rounds // 5))
    wire.close()


def _relay(wire: Wire, rounds: int) -> Iterator[Row]:
    top = _make(wire, slots=1, depth=0)
    below = _ask(wire, top, "POST", "/v1/sandboxes", SMALL)[1]["id"]
    look = ("GET", f"/v1/sandboxes/{below}")
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(statistics.fmean(_outside_ms(wire, *look) for _ in range(A_ROUND)))
        ours.append(statistics.fmean(_ask(wire, top, *look, times=A_ROUND)[0]))
    _destroy(wire, top)
    yield Row(
        figure="a call from inside",
        subject=Samples("look at a sandbox, by the socket inside", "ms", tuple(ours)),
        baseline=Samples("the same from outside", "ms", tuple(theirs)),
        bar=Bar(text="≤ 1.5 × from outside", limit=1.5),
    )


def _depth(wire: Wire, rounds: int) -> Iterator[Row | Samples]:
    created: list[list[float]] = [[] for _ in range(LAYERS)]
    shallow: list[float] = []
    deep: list[float] = []
    for _ in range(rounds):
        ids, times = _layers(wire, LAYERS)
        for values, value in zip(created, times, strict=True):
            values.append(value)
        for _ in range(A_ROUND // 2):
            # The first is the caller's own; what an operator does with those of others is written down.
            for sandbox, values in ((ids[1], shallow), (ids[-1], deep)):
                path = f"/v1/sandboxes/{sandbox}/exec"
                values.append(_outside_ms(wire, "POST", path, {"command": "true"}))
        _destroy(wire, ids[0])
    medians = [statistics.median(values) for values in created]
    added = [after - before for before, after in pairwise(medians)]
    yield Row(
        figure=f"what each of {LAYERS} layers adds to a create",
        subject=Samples("the most that one adds", "ms", (max(added),)),
        baseline=None,
        bar=Bar(text="≤ 25 ms", limit=25.0),
        note="create in each layer: " + ", ".join(f"{value:.1f}" for value in medians) + " ms",
    )
    yield Row(
        figure=f"exec in layer {LAYERS}",
        subject=Samples(f"exec in layer {LAYERS}", "ms", tuple(deep)),
        baseline=Samples("exec in the second", "ms", tuple(shallow)),
        bar=Bar(text="≤ 1.1 × in the second", limit=1.1),
    )
    yield Samples(f"create in layer {LAYERS}", "ms", tuple(created[-1]))


def _layers(wire: Wire, count: int) -> tuple[list[str], list[float]]:
    """Makes sandboxes below each other, each from inside the one above, and returns what each create took."""
    start = time.perf_counter()
    ids = [_make(wire, slots=count - 1, depth=count - 2)]
    times = [(time.perf_counter() - start) * 1000]
    for left in range(count - 2, -1, -1):
        body = SMALL | ({"inception": {"slots": left, "depth": left - 1}} if left else {})
        took, made = _ask(wire, ids[-1], "POST", "/v1/sandboxes", body)
        ids.append(made["id"])
        times += took
    return ids, times


def _make(wire: Wire, **bounds: int) -> str:
    made = wire.ask("POST", "/v1/sandboxes", SMALL | {"inception": bounds}).json()
    return str(made["id"])


def _ask(
    wire: Wire, sandbox: str, method: str, path: str, body: object = None, *, times: int = 1
) -> tuple[list[float], dict[str, str]]:
    asked = json.dumps({"method": method, "path": path, "body": body, "times": times})
    ran = wire.ask(
        "POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["python3", "-c", PROGRAM], "stdin": asked}
    ).json()
    if ran["exit_code"] != 0:
        raise RuntimeError(f"a call from inside failed: {ran['stderr']}")
    took, answer = json.loads(ran["stdout"])
    return took, answer


def _outside_ms(wire: Wire, method: str, path: str, body: object = None) -> float:
    prepared = wire.prepare(method, path, body)
    start = time.perf_counter()
    wire.send_prepared(prepared)
    reply = wire.receive()
    took = (time.perf_counter() - start) * 1000
    reply.json()
    return took


def _destroy(wire: Wire, top: str) -> None:
    """Ends a whole tree, and waits for it."""
    wire.ask("DELETE", f"/v1/sandboxes/{top}").json()
    while wire.ask("GET", "/v1/sandboxes?limit=1").json()["sandboxes"]:
        time.sleep(0.02)

"""Requests through the proxy to a port inside a sandbox, against Caddy as a reverse proxy.

One small server (`bench/upstream.c`) answers for both: inside a sandbox for us, for Caddy on the host, which
is as near as it can be. Load comes from `wrk` (as many requests as go) and `h2load` (so many a second), over
kept-alive connections, in turns in one run, so that both meet the same machine. The bare server is told too.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running, free_port
from sandboxer.sdk.sync.client import Sandboxer

SOURCE = Path(__file__).parents[1] / "upstream.c"
CONNECTIONS = 32
ROUND_S = 3
FASTEST = Bar(text="≥ 0.3 × Caddy's requests a second", limit=0.3, at_least=True)
CALM = Bar(text="≤ 3 × Caddy's p99 at half of our load", limit=3.0)
NEEDED = {"wrk": "wrk", "h2load": "nghttp2-client", "caddy": "caddy", "gcc": "gcc"}


def proxy(running: Running, rounds: int) -> Iterator[Row | Samples | Skipped]:
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        yield Skipped("reverse proxy", f"not installed: {', '.join(missing)}")
        return
    folder = running.state_dir / "proxy"
    folder.mkdir(exist_ok=True)
    program = folder / "upstream"
    subprocess.run(["gcc", "-O2", "-static", "-o", str(program), str(SOURCE)], check=True)
    with ExitStack() as opened:
        bare = free_port()
        opened.enter_context(_running([str(program), str(bare)], folder, bare))
        caddy = opened.enter_context(_caddy(folder, bare))
        host, port = opened.enter_context(_inside(running, program))
        ours = (f"http://127.0.0.1:{port}/", host)
        theirs = (f"http://127.0.0.1:{caddy}/", "bench.test")
        yield from _compare(ours, theirs, (f"http://127.0.0.1:{bare}/", "bench.test"), folder, min(rounds, 9))


def _compare(
    ours: tuple[str, str], theirs: tuple[str, str], bare: tuple[str, str], folder: Path, rounds: int
) -> Iterator[Row | Samples]:
    for way in (ours, theirs, bare):
        _throughput(*way, seconds=1)
    fast: list[tuple[float, float, float]] = [
        (_throughput(*theirs), _throughput(*ours), _throughput(*bare)) for _ in range(rounds)
    ]
    caddys, mine, direct = (tuple(one[at] for one in fast) for at in range(3))
    yield Row(
        figure="requests a second through the proxy",
        subject=Samples("sandboxer, into a sandbox", "/s", mine),
        baseline=Samples("Caddy, on the host", "/s", caddys),
        bar=FASTEST,
    )
    yield Samples("requests a second without a proxy", "/s", direct)
    rate = max(1, round(statistics.median(mine) / 2 / CONNECTIONS))
    calm = [(_p99_ms(*theirs, rate, folder), _p99_ms(*ours, rate, folder)) for _ in range(rounds)]
    yield Row(
        figure="p99 through the proxy at half load",
        subject=Samples("sandboxer, into a sandbox", "ms", tuple(one[1] for one in calm)),
        baseline=Samples("Caddy, on the host", "ms", tuple(one[0] for one in calm)),
        bar=CALM,
        note=f"both at {rate * CONNECTIONS} requests a second",
    )


def _throughput(url: str, host: str, *, seconds: int = ROUND_S) -> float:
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-H", f"Host: {host}", url]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(f"not every request was answered:\n{said}")
    found = re.search(r"Requests/sec:\s+([0-9.]+)", said)
    if found is None:
        raise RuntimeError(said)
    return float(found[1])


def _p99_ms(url: str, host: str, rate: int, folder: Path) -> float:
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    count = rate * CONNECTIONS * ROUND_S
    words = ["h2load", "--h1", "-t1", f"-c{CONNECTIONS}", f"-n{count}", f"--rps={rate}"]
    words += ["-H", f":authority: {host}", f"--log-file={log}", url]
    subprocess.run(words, capture_output=True, check=True)
    took: list[int] = []
    for line in log.read_text().splitlines():
        _, status, microseconds = line.split("\t")[:3]
        if status != "200":
            raise RuntimeError(f"answered {status}")
        took.append(int(microseconds))
    took.sort()
    return took[int(len(took) * 0.99)] / 1000


@contextmanager
def _inside(running: Running, program: Path) -> Iterator[tuple[str, int]]:
    """The server on a public port of a sandbox: its host name and the proxy's port."""
    with Sandboxer(owner_file=running.owner_file) as client:
        sandbox = client.create(resources={"disk_mb": 128})
        try:
            sandbox.files.write("/upstream", program.read_bytes(), mode=0o755)
            sandbox.processes.start(["/upstream", "3000"])
            made = sandbox.previews.create(3000, public=True)
            if made.url is None:
                raise RuntimeError("the platform serves no ports")
            host = made.url.removeprefix("http://").rstrip("/")
            yield host, int(host.rpartition(":")[2])
        finally:
            sandbox.destroy()


@contextmanager
def _caddy(folder: Path, upstream: int) -> Iterator[int]:
    port = free_port()
    file = folder / "Caddyfile"
    file.write_text(
        f"{{\n\tadmin off\n\tauto_https off\n}}\n:{port} {{\n\treverse_proxy 127.0.0.1:{upstream}\n}}\n"
    )
    with _running(["caddy", "run", "--adapter", "caddyfile", "--config", str(file)], folder, port):
        yield port


@contextmanager
def _running(words: list[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / "log").open("ab") as log:
        environment = {"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(["bash", "-c", f": </dev/tcp/127.0.0.1/{port}"], capture_output=True).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)

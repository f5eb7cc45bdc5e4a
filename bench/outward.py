"""What the egress scenario runs in network namespaces of its own: a host, and behind a cable the world.

    python -m bench.outward serve PORT ADDRESS        our proxy alone, on loopback
    python -m bench.outward big                       a server of one large file
    python -m bench.outward measure ROUNDS FOLDER IMAGES    everything in turns; prints JSON

The proxy is the product's own, with no switch: the world's one address looks public, and its rules allow it.
For the bench only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench.platform import free_port, open_platform
from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.policy import Rules
from sandboxer.access.egress.proxy.connection import EgressConnection
from sandboxer.access.egress.proxy.dialer import Dialer, Means, SystemResolver
from sandboxer.access.egress.proxy.wire import Wire
from sandboxer.access.egress.rules import Action, Policy, Rule, check_policy
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox

ADDRESS = "93.184.215.14"
# This host's own, which is not to be reached.
OWN = "185.199.108.153"
BIG_PORT = 8080
BIG_MB = 256
CONNECTIONS = 16
ROUND_S = 3
SOURCE = Path(__file__).parent / "upstream.c"
RULES = [{"action": "allow", "host": ADDRESS, "ports": [80, BIG_PORT]}]
_FETCH = f"""
import socket, time
began, got = time.time(), 0
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT {ADDRESS}:{BIG_PORT} HTTP/1.1\\r\\nHost: {ADDRESS}\\r\\n\\r\\n")
s.recv(65536)
s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
while data := s.recv(1 << 20): got += len(data)
print(got / (time.time() - began) / 1e6)
"""


class NoSecrets:
    async def value_of(self, account: str, name: str) -> str | None:
        return None


async def serve(port: int, address: str) -> None:
    ports = (80, BIG_PORT)
    policy = check_policy(Policy(rules=(Rule(action=Action.ALLOW, host=address, ports=ports),)))
    now: Callable[[], datetime] = lambda: datetime.now(UTC)  # noqa: E731
    outlet = Outlet("sbx_bench", "bench", Rules(policy), now)
    means = Means(dialer=Dialer(SystemResolver()), secrets=NoSecrets(), now=now)
    async with own_tasks() as tasks:

        class Served(Wire):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                tasks.start(EgressConnection(outlet, self, means).run(), name="egress")

        server = await asyncio.get_running_loop().create_server(
            lambda: Served(outlet.heard), "127.0.0.1", port, backlog=1024
        )
        async with server:
            await server.serve_forever()


def measure(rounds: int, folder: Path, images: Path) -> dict[str, list[float]]:
    program = folder / "upstream"
    subprocess.run(["gcc", "-O2", "-static", "-o", str(program), str(SOURCE)], check=True)
    reported: dict[str, list[float]] = {}
    with ExitStack() as opened:
        far = opened.enter_context(_world())
        opened.enter_context(_running([*far, str(program), "80", ADDRESS], (ADDRESS, 80)))
        big = [sys.executable, "-m", "bench.outward", "big"]
        opened.enter_context(_running([*far, *big], (ADDRESS, BIG_PORT)))
        ours, theirs = free_port(), free_port()
        serving = [sys.executable, "-m", "bench.outward", "serve", str(ours), ADDRESS]
        opened.enter_context(_running(serving, ("127.0.0.1", ours)))
        opened.enter_context(_running(_tinyproxy(folder, theirs), ("127.0.0.1", theirs)))
        for port in (ours, theirs):
            _requests(port, folder, seconds=1)
        for _ in range(rounds):
            for name, port in (("theirs", theirs), ("ours", ours)):
                reported.setdefault(f"requests {name}", []).append(_requests(port, folder))
                reported.setdefault(f"tunnel {name}", []).append(_tunnel(port))
        reported["tunnel bare"] = [_tunnel(None) for _ in range(rounds)]
        with _sandbox(folder, images) as sandbox:
            for _ in range(rounds):
                said = sandbox.exec(["python3", "-c", _FETCH])
                reported.setdefault("tunnel inside", []).append(float(said.stdout))
    return reported


@contextmanager
def _world() -> Iterator[list[str]]:
    """Words that run a program out there."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        here = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 30
        while os.readlink(f"/proc/{holder.pid}/ns/net") == here:
            if time.monotonic() > deadline:
                raise RuntimeError("there is no network namespace to be had")
            time.sleep(0.01)
        far = ["nsenter", "--net", "--target", str(holder.pid)]
        _ip([], f"link add out type veth peer name far netns {holder.pid}", *_wired("out", OWN))
        _ip(far, *_wired("far", ADDRESS))
        yield far
    finally:
        holder.terminate()
        holder.wait(20)


def _wired(name: str, address: str) -> list[str]:
    cable = [f"addr add {address}/32 dev {name}", f"link set {name} up", f"route add 0.0.0.0/0 dev {name}"]
    return ["link set lo up", *cable]


def _ip(far: list[str], *lines: str) -> None:
    subprocess.run([*far, "ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _requests(port: int, folder: Path, *, seconds: int = ROUND_S) -> float:
    script = folder / "proxied.lua"
    script.write_text(
        f'wrk.path = "http://{ADDRESS}/"\nwrk.headers["Host"] = "{ADDRESS}"\n'
        'wrk.headers["Connection"] = "close"\n'
    )
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", str(script), f"http://127.0.0.1:{port}/"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Requests/sec:\s+([0-9.]+)", said)
    if found is None or "Non-2xx" in said:
        raise RuntimeError(said)
    return float(found[1])


def _tunnel(port: int | None) -> float:
    """MB a second of one download, through CONNECT."""
    proxied = [] if port is None else ["-p", "-x", f"http://127.0.0.1:{port}"]
    words = ["curl", "-sS", "-o", "/dev/null", "-w", "%{speed_download}", *proxied]
    said = subprocess.run(
        [*words, f"http://{ADDRESS}:{BIG_PORT}/"], capture_output=True, text=True, check=True
    )
    return float(said.stdout) / 1e6


def _big_server() -> None:
    with socket.create_server((ADDRESS, BIG_PORT)) as listening:
        while True:
            threading.Thread(target=_send_big, args=(listening.accept()[0],), daemon=True).start()


def _send_big(client: socket.socket) -> None:
    size = BIG_MB << 20
    with client, open("/dev/shm/egress-bench" if os.path.isdir("/dev/shm") else os.devnull, "w+b") as file:
        file.truncate(size)
        if not client.recv(65536):
            return
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size)
        sent = 0
        while sent < size:
            sent += os.sendfile(client.fileno(), file.fileno(), sent, size - sent)


def _tinyproxy(folder: Path, port: int) -> list[str]:
    file = folder / "tinyproxy.conf"
    file.write_text(
        f"User nobody\nGroup nogroup\nPort {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 200\n"
        f"LogLevel Critical\nConnectPort {BIG_PORT}\nConnectPort 443\nDisableViaHeader Yes\n"
    )
    return ["tinyproxy", "-d", "-c", str(file)]


@contextmanager
def _sandbox(folder: Path, images: Path) -> Iterator[Sandbox]:
    state = folder / "egress"
    state.mkdir()
    with open_platform(state, images) as running, Sandboxer(owner_file=running.owner_file) as client:
        sandbox = client.create(resources={"disk_mb": 128}, trust="semi")
        sandbox.egress.replace(rules=RULES)
        yield sandbox


@contextmanager
def _running(words: list[str], at: tuple[str, int]) -> Iterator[None]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(at, 1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        uvloop.run(serve(int(sys.argv[2]), sys.argv[3]))
    elif sys.argv[1] == "big":
        _big_server()
    else:
        print(json.dumps(measure(int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))))

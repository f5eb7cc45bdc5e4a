"""`python -m bench.abuse`: a tenant who does the worst that was found, over and over, until it is ended.

Runs with the lowest priority: on a real network its own work would be done on another machine. It says
`ready` once every act has run to its end, and at the end of its input how often each of them has.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from bench.client import BadAnswer, Wire
from sandboxer.sdk.credentials import EMPTY_SHA256, Credentials, new_nonce, signed_headers

HOST = "127.0.0.1"
FOLDER_FILES = 150_000
OUTPUT = 1 << 26
SILENT = 400
HELD_BACK = 8
HOLD_S = 3.0
# For the folder with many files, on a machine that is busy too.
FILL_S = 150
# Whoever waits longer than this for one answer comes back on a new connection.
PATIENCE_S = 30.0
LOCKS = (
    "import fcntl,os\nfd=os.open('/tmp/l',os.O_RDWR|os.O_CREAT)\n"
    "for n in range(0,4000000,2): fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,1,n)\n"
)
SOCKETS = (
    "import socket\nheld=[]\n"
    "while True:\n"
    " a,b=socket.socketpair()\n a.setblocking(False); held.append((a,b))\n"
    " try:\n  while True: a.send(bytes(65536))\n"
    " except OSError: pass\n"
)
PINGS = (b"\x89\xfd\0\0\0\0" + b"p" * 125) * 1000
Act = Callable[["Abuser"], object]


class Abuser:
    def __init__(self, port: int, key: Credentials, acts: dict[str, Act]) -> None:
        self._port = port
        self._key = key
        self._acts = acts
        self._of_this_thread = threading.local()
        self.done: Counter[str] = Counter()

    def prepare(self) -> None:
        wire = Wire(HOST, self._port, self._key, timeout_s=FILL_S)
        self.main = self._sandbox(wire, disk_mb=600)
        self.sleeper = self._sandbox(wire, disk_mb=64)
        fill = f"mkdir -p /root/many && cd /root/many && seq {FOLDER_FILES} | xargs touch"
        if "listings" in self._acts:
            wire.ask("POST", f"{self.main}/exec", {"command": fill, "timeout_s": FILL_S}).json()
        self.archive = hostile_archive()
        serve = {"argv": ["python3", "-m", "http.server", "3000"]}
        wire.ask("POST", f"{self.sleeper}/processes", serve).json()
        open_to_all = {"port": 3000, "public": True, "wakes": True}
        self.preview = wire.ask("POST", f"{self.sleeper}/previews", open_to_all).json()
        wire.close()

    def run(self) -> None:
        """Each act in two threads of its own, again and again."""
        for name, act in self._acts.items():
            for _ in range(2):
                threading.Thread(target=self._over_and_over, args=(name, act), daemon=True).start()
        while any(not self.done[name] for name in self._acts):
            time.sleep(0.05)
        print("ready", flush=True)
        self.done.clear()
        sys.stdin.readline()
        print(json.dumps(self.done), flush=True)

    def ask(self, method: str, target: str, value: object = None) -> int:
        return self.wire().ask(method, target, value).status

    def wire(self) -> Wire:
        """The connection of this thread."""
        kept: Wire | None = getattr(self._of_this_thread, "wire", None)
        if kept is None:
            kept = self._of_this_thread.wire = self._new_wire()
        return kept

    def bare(self, method: str, target: str, more: str = "", *, digest: str = EMPTY_SHA256) -> socket.socket:
        """A socket on which the head of a signed request was sent."""
        signed = signed_headers(
            self._key, method, target, digest, timestamp=int(time.time()), nonce=new_nonce()
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        opened = socket.create_connection((HOST, self._port), timeout=PATIENCE_S)
        opened.sendall(f"{method} {target} HTTP/1.1\r\nhost: {HOST}\r\n{lines}{more}\r\n".encode())
        return opened

    def silent(self) -> socket.socket:
        return socket.create_connection((HOST, self._port), timeout=5)

    def fresh_sandbox(self) -> str:
        return self._sandbox(self.wire(), disk_mb=64)

    def _over_and_over(self, name: str, act: Act) -> None:
        while True:
            try:
                act(self)
                self.done[name] += 1
            except (OSError, BadAnswer, ValueError):
                # Refused or thrown out: it comes back at once, as such a tenant would.
                self._of_this_thread.wire = None
                time.sleep(0.01)

    def _sandbox(self, wire: Wire, *, disk_mb: int) -> str:
        made = wire.ask("POST", "/v1/sandboxes", {"resources": {"disk_mb": disk_mb}}).json()
        return f"/v1/sandboxes/{made['id']}"

    def _new_wire(self) -> Wire:
        return Wire(HOST, self._port, self._key, timeout_s=PATIENCE_S)


def outputs(abuser: Abuser) -> object:
    """22: output that grows sixfold as JSON."""
    body = {"command": f"head -c {OUTPUT} /dev/zero", "output_limit_bytes": OUTPUT}
    return abuser.ask("POST", f"{abuser.main}/exec", body)


def long_heads(abuser: Abuser) -> object:
    """23."""
    with abuser.silent() as opened:
        opened.sendall(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n")
        return opened.recv(1024)


def silence(abuser: Abuser) -> None:
    """24: opened, held, closed, opened again."""
    held = [abuser.silent() for _ in range(SILENT)]
    time.sleep(0.5)
    for one in held:
        one.close()


def uploads(abuser: Abuser) -> None:
    """25: bodies of which a megabyte comes and the rest does not."""
    target = f"{abuser.main}/files/content?path={quote('/root/held', safe='')}"
    _held_back(abuser, "PUT", target, b"u" * (1 << 20))


def imports(abuser: Abuser) -> None:
    """26: the same where there are few places."""
    _held_back(abuser, "POST", "/v1/images/import?name=held", abuser.archive[: 1 << 20])


def _held_back(abuser: Abuser, method: str, target: str, begin: bytes) -> None:
    digest, more = hashlib.sha256(begin).hexdigest(), f"content-length: {1 << 26}\r\n"
    more += "content-type: application/octet-stream\r\n"
    held = [abuser.bare(method, target, more, digest=digest) for _ in range(HELD_BACK)]
    for one in held:
        try:
            one.sendall(begin)
        except OSError:
            continue  # refused at its head
    time.sleep(HOLD_S)
    for one in held:
        one.close()


def listings(abuser: Abuser) -> object:
    """27."""
    return abuser.ask("GET", f"{abuser.main}/files?path={quote('/root/many', safe='')}&limit=500")


def pings(abuser: Abuser) -> None:
    """28: a terminal that prints without end, and pings, for a viewer who reads nothing."""
    more = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    more += "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    with abuser.bare("GET", f"{abuser.main}/terminal?command=yes", more) as opened:
        opened.settimeout(HOLD_S)
        try:
            for _ in range(400):
                opened.sendall(PINGS)
        except OSError:
            return  # it is read no more, or was thrown out


def locks(abuser: Abuser) -> None:
    """30: the sandbox ends by it, and the next one begins."""
    target = abuser.fresh_sandbox()
    abuser.ask("POST", f"{target}/exec", {"argv": ["python3", "-c", LOCKS], "timeout_s": 10})
    abuser.ask("DELETE", target)


def sockets(abuser: Abuser) -> None:
    """30."""
    target = abuser.fresh_sandbox()
    abuser.ask("POST", f"{target}/exec", {"argv": ["python3", "-c", SOCKETS], "timeout_s": 5})
    abuser.ask("DELETE", target)


def archives(abuser: Abuser) -> object:
    """35."""
    body = abuser.archive
    digest = hashlib.sha256(body).hexdigest()
    return abuser.wire().put("/v1/images/import?name=bad", (body,), digest, len(body), method="POST")


def wakes(abuser: Abuser) -> None:
    """41: frozen by its owner, woken by a stranger; by its owner where strangers have woken enough."""
    abuser.ask("POST", f"{abuser.sleeper}/freeze")
    host = abuser.preview["url"].removeprefix("http://").rstrip("/")
    with socket.create_connection((HOST, int(host.rpartition(":")[2])), timeout=PATIENCE_S) as opened:
        opened.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        opened.recv(1 << 16)
    abuser.ask("POST", f"{abuser.sleeper}/thaw")


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        outputs,
        long_heads,
        silence,
        uploads,
        imports,
        listings,
        pings,
        locks,
        sockets,
        archives,
        wakes,
    )
}


def hostile_archive() -> bytes:
    """Files and marks in one folder: each mark once listed all files."""
    layer = _tar([(f"d/{n}", b"") for n in range(3000)] + [("d/.wh..wh..opq", b"")] * 3000)
    diff = "sha256:" + hashlib.sha256(layer).hexdigest()
    config = json.dumps({"rootfs": {"diff_ids": [diff]}}).encode()
    manifest = json.dumps([{"Config": "c.json", "Layers": ["l.tar"]}]).encode()
    return _tar([("manifest.json", manifest), ("c.json", config), ("l.tar", layer)])


def _tar(files: list[tuple[str, bytes]]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


def main() -> None:
    os.nice(19)
    autogroup = Path("/proc/self/autogroup")
    if autogroup.exists():
        # Its session is its own; where sessions are scheduled as groups, this is what counts.
        autogroup.write_text("19")
    request = json.loads(sys.stdin.readline())
    key = Credentials(request["public_key"], request["secret_key"], f"http://{HOST}:{request['port']}")
    abuser = Abuser(request["port"], key, {name: ACTS[name] for name in request["acts"]})
    abuser.prepare()
    abuser.run()


if __name__ == "__main__":
    main()

"""`python -m bench.abuse`: a tenant who does the worst that was found, over and over, until it is ended.

Runs with the lowest priority: on a real network its own work would be done on another machine.
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
from collections.abc import Callable
from urllib.parse import quote

from bench.client import BadAnswer, Wire
from sandboxer.sdk.signing import Credentials

FOLDER_FILES = 30_000
SILENT = 400
LOCKS = (
    "import fcntl,os\nfd=os.open('/tmp/l',os.O_RDWR|os.O_CREAT)\n"
    "for n in range(0,4000000,2): fcntl.lockf(fd,fcntl.LOCK_EX|fcntl.LOCK_NB,1,n)\n"
)


class Abuser:
    def __init__(self, port: int, key: Credentials) -> None:
        self._port = port
        self._key = key
        self._sandbox = ""

    def prepare(self) -> None:
        wire = self._wire()
        made = wire.ask("POST", "/v1/sandboxes", {"resources": {"disk_mb": 400}}).json()
        self._sandbox = f"/v1/sandboxes/{made['id']}"
        fill = f"mkdir -p /tmp/many && cd /tmp/many && seq {FOLDER_FILES} | xargs touch"
        wire.ask("POST", f"{self._sandbox}/exec", {"command": fill, "timeout_s": 60}).json()
        wire.close()

    def acts(self) -> tuple[Callable[[Wire], object], ...]:
        return (self._zeros, self._listing, self._locks, self._long_head, self._archive)

    def run(self) -> None:
        """Each act in threads of its own, again and again."""
        for act in self.acts():
            for _ in range(2):
                threading.Thread(target=self._over_and_over, args=(act,), daemon=True).start()
        threading.Thread(target=self._silent_connections, daemon=True).start()
        while True:
            time.sleep(60)

    def _over_and_over(self, act: Callable[[Wire], object]) -> None:
        while True:
            try:
                wire = self._wire()
                while True:
                    act(wire)
            except (OSError, BadAnswer, ValueError):
                # Refused or thrown out: it comes back at once, as such a tenant would.
                time.sleep(0.01)

    def _zeros(self, wire: Wire) -> object:
        """Output that grows sixfold as JSON."""
        body = {"command": "head -c 67108864 /dev/zero", "output_limit_bytes": 1 << 26}
        return wire.ask("POST", f"{self._sandbox}/exec", body)

    def _listing(self, wire: Wire) -> object:
        return wire.ask("GET", f"{self._sandbox}/files?path={quote('/tmp/many', safe='')}")

    def _locks(self, wire: Wire) -> object:
        body = {"argv": ["python3", "-c", LOCKS], "timeout_s": 20}
        answer = wire.ask("POST", f"{self._sandbox}/exec", body)
        if answer.status >= 400:
            self.prepare()
        return answer

    def _long_head(self, wire: Wire) -> object:
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as bare:
            bare.sendall(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: x\r\n")
            return bare.recv(1024)

    def _archive(self, wire: Wire) -> object:
        body = hostile_archive()
        head = hashlib.sha256(body).hexdigest()
        return wire.put("/v1/images/import?name=bad", (body,), head, len(body), method="POST")

    def _silent_connections(self) -> None:
        held: list[socket.socket] = []
        while True:
            try:
                held.append(socket.create_connection(("127.0.0.1", self._port), timeout=5))
            except OSError:
                time.sleep(0.1)
            if len(held) > SILENT:
                held.pop(0).close()

    def _wire(self) -> Wire:
        return Wire("127.0.0.1", self._port, self._key, timeout_s=30.0)


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
    told = json.loads(sys.stdin.readline())
    url = f"http://127.0.0.1:{told['port']}"
    abuser = Abuser(told["port"], Credentials(told["public_key"], told["secret_key"], url))
    abuser.prepare()
    print("ready", flush=True)
    abuser.run()


if __name__ == "__main__":
    main()

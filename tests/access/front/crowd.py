"""An attacker of its own process: keeps N connections open that never say a word.

    python -m tests.access.front.crowd PORT COUNT ADDRESSES

Connections come from COUNT / ADDRESSES each of 127.1.x.y (127.0.0.1 alone if ADDRESSES is 1); whatever the
server closes is opened again, a few hundred a second. Prints one line once all were opened, ends with stdin.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import sys
import time

AGAIN_PER_S = 300


def main(port: int, count: int, addresses: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    watch = selectors.DefaultSelector()
    watch.register(sys.stdin, selectors.EVENT_READ)
    for n in range(count):
        _open(watch, port, n, addresses)
    print(f"{count} connections from {addresses} addresses were opened", flush=True)
    lost: list[int] = []
    while True:
        for key, _ in watch.select(0.1):
            if key.data is None:
                return
            watch.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
            lost.append(key.data)
        for n in lost[: AGAIN_PER_S // 10]:
            _open(watch, port, n, addresses)
        del lost[: AGAIN_PER_S // 10]
        time.sleep(0.01)


def _open(watch: selectors.BaseSelector, port: int, n: int, addresses: int) -> None:
    sock = socket.socket()
    sock.setblocking(True)
    sock.settimeout(10)
    if addresses > 1:
        mine = n % addresses
        sock.bind((f"127.1.{mine // 250}.{mine % 250 + 1}", 0))
    with contextlib.suppress(OSError):
        sock.connect(("127.0.0.1", port))
        watch.register(sock, selectors.EVENT_READ, n)
        return
    sock.close()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:4]))

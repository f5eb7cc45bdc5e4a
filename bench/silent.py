"""`python -m bench.silent PORT COUNT ADDRESSES AGAIN`: a crowd of connections that never say a word.

They come from ADDRESSES different 127.1.x.y (127.0.0.1 alone if it is 1), as fast as they are accepted. AGAIN
says how many of those that the server has closed are opened again each second: 0 for a crowd that tries
once. Prints "begins" before the first, "all" after the last, and ends with its standard input. Runs with the
lowest priority: on a real network its work would be done on other machines.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import sys
import time


class Crowd:
    def __init__(self, port: int, count: int, addresses: int, again: int) -> None:
        self._port, self._count, self._addresses, self._again = port, count, addresses, again
        self._watch = selectors.DefaultSelector()
        self._lost: list[int] = []

    def run(self) -> None:
        """Open all, then keep them until somebody closes our standard input."""
        self._watch.register(sys.stdin, selectors.EVENT_READ)
        print("begins", flush=True)
        for n in range(self._count):
            self._open(n)
            if n % 64 == 0 and not self._look(0.0):
                return
        print("all", flush=True)
        began = time.monotonic()
        opened = 0
        while self._look(0.02):
            due = int((time.monotonic() - began) * self._again) - opened
            for n in self._lost[:due]:
                self._open(n)
            # What could not be used is not saved up: nobody is to meet a burst later.
            opened += max(0, due)
            del self._lost[: max(0, due)]

    def _look(self, seconds: float) -> bool:
        """Notice what the server has closed. False: it is over."""
        for key, _ in self._watch.select(seconds):
            if key.data is None:
                return False
            self._watch.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
            self._lost.append(key.data)
        return True

    def _open(self, n: int) -> None:
        sock = socket.socket()
        sock.settimeout(10)
        if self._addresses > 1:
            mine = n % self._addresses
            sock.bind((f"127.1.{mine // 250}.{mine % 250 + 1}", 0))
        with contextlib.suppress(OSError):
            sock.connect(("127.0.0.1", self._port))
            self._watch.register(sock, selectors.EVENT_READ, n)
            return
        sock.close()
        self._lost.append(n)


def main() -> None:
    os.nice(19)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    port, count, addresses, again = (int(word) for word in sys.argv[1:5])
    Crowd(port, count, addresses, again).run()


if __name__ == "__main__":
    main()

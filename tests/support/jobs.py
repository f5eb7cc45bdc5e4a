"""A blocking client of a real server, and the server's sudden end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Unpack

from sandboxer.sdk.code import Options
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import Process, Up


def small(**more: Unpack[Options]) -> Options:
    return {"disk_mb": 64, "memory_mb": 128, **more}


def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def client(up: Up) -> Sandboxer:
    return Sandboxer(owner_file=up.owner_file, url=up.url)


def kill(server: Process) -> None:
    server.kill()
    server.wait(30)

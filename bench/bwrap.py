"""The floor: bubblewrap on our base image, exactly as the decisions and the bars pin it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "/usr/bin/bwrap"


ECHO = ("/bin/echo", "hi")


def argv(image: Path, command: Sequence[str] = ECHO) -> list[str]:
    return [
        PROGRAM,
        *("--ro-bind", str(image), "/"),
        *("--proc", "/proc"),
        *("--dev", "/dev"),
        *("--tmpfs", "/tmp"),
        "--unshare-all",
        "--die-with-parent",
        *command,
    ]


def spawn(argv: list[str], out: int) -> int:
    return os.posix_spawn(argv[0], argv, dict(os.environ), file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])


def life_ms(argv: list[str], *, says: bytes = b"hi\n") -> float:
    """The whole life of one command, from outside: spawn, read its output to the end, reap it."""
    reader, writer = os.pipe()
    try:
        start = time.perf_counter()
        pid = spawn(argv, writer)
        os.close(writer)
        said = b""
        while chunk := os.read(reader, 4096):
            said += chunk
        _, status = os.waitpid(pid, 0)
        took = (time.perf_counter() - start) * 1000
    finally:
        os.close(reader)
    if status or said != says:
        raise RuntimeError(f"{argv[0]} ended with status {status} and said {said!r}")
    return took


def crowd_ms(argv: list[str], count: int) -> float:
    """`count` of them started at once: until the last one is gone."""
    silent = os.open(os.devnull, os.O_WRONLY)
    try:
        start = time.perf_counter()
        pids = [spawn(argv, silent) for _ in range(count)]
        failed = sum(1 for pid in pids if os.waitpid(pid, 0)[1])
        took = (time.perf_counter() - start) * 1000
    finally:
        os.close(silent)
    if failed:
        raise RuntimeError(f"{failed} of {count} bwraps failed")
    return took

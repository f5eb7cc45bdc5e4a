"""Asks the process that is gVisor's kernel by its control socket, as its own command line does. Everything
here blocks: callers run it in a thread.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from sandboxer.kernel.errors import BackendLost, Unavailable

ANSWER_TIMEOUT_S = 10.0
_ANSWER_BYTES = 65536
# The group of all commands, in the tree that counts processes (guest/supervisor/groups.c).
_ALL = {"controller": "pids", "path": "/all", "name": "pids.max"}


def limit_processes(control: Path, pids: int) -> None:
    """Gives all commands of a sandbox so many processes from now on. Raises BackendLost, Unavailable."""
    results = _ask(control, "Cgroups.WriteControlFiles", {"args": [{"file": _ALL, "value": str(pids)}]})
    failed = [one.get("value") for one in results if one.get("is_error")]
    if failed or not results:
        raise Unavailable(why=f"gVisor did not set its limit of processes: {failed or 'no answer'}")


def _ask(control: Path, method: str, arg: object) -> list[dict[str, object]]:
    folder = -1
    try:
        folder = os.open(control.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_TIMEOUT_S)
            # A long path does not fit into an address.
            line.connect(f"/proc/self/fd/{folder}/{control.name}")
            line.sendall(json.dumps({"method": method, "arg": arg}).encode())
            answer = _answer(line)
    except TimeoutError:
        raise Unavailable(why=f"gVisor did not answer within {ANSWER_TIMEOUT_S:g} s") from None
    except OSError:
        raise BackendLost(why="the sandbox is not running") from None
    finally:
        if folder >= 0:
            os.close(folder)
    if not answer.get("success"):
        raise Unavailable(why=f"gVisor refused {method}: {answer.get('err')}")
    result = answer.get("result")
    return list(result["results"]) if isinstance(result, dict) else []


def _answer(line: socket.socket) -> dict[str, object]:
    said = b""
    while part := line.recv(_ANSWER_BYTES):
        said += part
        try:
            return dict(json.loads(said))
        except ValueError:
            continue
    raise ConnectionResetError

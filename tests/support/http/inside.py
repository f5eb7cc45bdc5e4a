"""Programs in a sandbox that ask the platform, as its client does, or with bytes of their own."""

from __future__ import annotations

import json
from typing import Any

from sandboxer.agents.inception.grants import account_of
from tests.support.http.real import sh
from tests.support.http.served import Served
from tests.support.http.signed import Client

SMALL: dict[str, Any] = {"resources": {"disk_mb": 64, "memory_mb": 64}, "ttl": "5m"}
# For programs in Python inside: a connection that is a stream of the socket.
CONNECTION = """
import http.client, json, socket, sys
class Inside(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/run/sandboxer/api.sock")
"""
# Reads one answer whole: its head may come before its body.
_RAW = """
import re, socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(20)
line.connect("/run/sandboxer/api.sock")
line.sendall(sys.stdin.buffer.read())
seen = b""
def is_whole():
    head, end, body = seen.partition(b"\\r\\n\\r\\n")
    length = re.search(rb"(?i)\\ncontent-length: *(\\d+)", head)
    return end and len(body) >= int(length[1] if length else 0)
while not is_whole():
    piece = line.recv(65536)
    if not piece: break
    seen += piece
print(seen.decode("latin-1"))
"""


async def ask(
    served: Served, path: str, method: str, where: str, body: object = None, *, code: int = 0
) -> Any:
    """Asks as a program in the sandbox does; `code` is how its client ends."""
    words = f"sandboxer api {method} '{where}'"
    ran = await sh(served, path, f"{words} -" if body is not None else words, stdin=json.dumps(body or ""))
    assert ran["exit_code"] == code, ran
    return json.loads(str(ran["stdout"])) if ran["stdout"] else None


async def granted(served: Served, **bounds: object) -> str:
    """The path of a sandbox that may ask."""
    return await served.sandbox(**SMALL, inception=bounds)


def account(path: str) -> str:
    return account_of(path.rpartition("/")[2])


async def raw(served: Served, path: str, request: str) -> str:
    """What the socket answers to these very bytes."""
    return await raw_bytes(served, path, request.replace("\n", "\r\n"))


async def raw_bytes(served: Served, path: str, request: str) -> str:
    answer = await served.client.post(
        f"{path}/exec", {"argv": ["python3", "-c", _RAW], "stdin": request, "timeout_s": 60}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"]) + str(answer.json()["stderr"])


async def money(client: Client) -> dict[str, int]:
    found: dict[str, int] = (await client.get("/v1/accounts/me")).json()["money"]
    return found

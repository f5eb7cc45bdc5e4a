"""Everything a customer may have on a platform, made with one version of it and used with another."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.accounts import UsageSegment
from tests.faults.platforms import Served

T = TypeVar("T")
SATS, CHILD_SATS = 1_000_000, 5_000
SMALL = {"disk_mb": 64, "memory_mb": 96}
# Nobody else says these words: they are searched for in the database's files.
SAID, SERVED = "a-word-of-the-sandbox-7f3a", "a-word-of-the-service-91c0"
ECHOING = 'while read -r line; do echo "got $line"; done'
APP = """#!/usr/bin/python3
import http.server, os
class One(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        words = os.environ["GREETING"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), One).serve_forever()
"""


@dataclass(frozen=True)
class Made:
    plain: str
    with_env: str
    frozen: str
    stopped: str
    process: str
    session: str
    session_sandbox: str
    service_sandbox: str
    snapshot: str
    volume: str
    agent: Credentials
    child: Credentials
    childs_own: str

    @property
    def running(self) -> set[str]:
        """Those with processes, frozen ones among them."""
        own = {self.plain, self.with_env, self.frozen, self.childs_own}
        return own | {self.session_sandbox, self.service_sandbox}

    @property
    def sandboxes(self) -> set[str]:
        return self.running | {self.stopped}


def as_owner(served: Served) -> Sandboxer:
    return Sandboxer(owner_file=served.up.owner_file, url=served.up.url, timeout_s=120)


def as_key(served: Served, key: Credentials) -> Sandboxer:
    return Sandboxer(url=served.up.url, public_key=key.public_key, secret_key=key.secret_key, timeout_s=120)


def make(served: Served) -> Made:
    with as_owner(served) as owner:
        owner.operator.create_account(id="agent", name="agent", reason="a test")
        owner.operator.adjust("agent", SATS, id="upgrade-1", reason="a test")
        key = owner.keys.create("agent", "agent")
    agent = Credentials(key.public_key, key.secret_key, served.up.url)
    with as_key(served, agent) as client:
        cut = client.keys.delegate(
            "child",
            ["sandboxes:create", "sandboxes:read", "sandboxes:destroy", "exec"],
            budget_sats=CHILD_SATS,
        )
        child = Credentials(cut.public_key, cut.secret_key, served.up.url)
        return _furnish(served, client, agent, child)


def _furnish(served: Served, client: Sandboxer, agent: Credentials, child: Credentials) -> Made:
    volume = client.volumes.create("kept", size_mb=32)
    plain = client.create(resources=SMALL, volumes=[{"volume": volume.id, "path": "/kept"}])
    plain.files.write("/root/file", b"precious")
    plain.files.write("/kept/file", b"on the volume")
    with_env = client.create(resources=SMALL, env={"WORD": SAID})
    frozen = client.create(resources=SMALL)
    frozen.exec("echo frozen > /root/file")
    stopped = client.create(resources=SMALL, env={"WORD": SAID})
    stopped.exec("echo stopped > /root/file")
    process = plain.processes.start(ECHOING, has_stdin=True)
    plain.processes.write_stdin(process.process_id, b"before\n")
    session = client.sessions.start("python", resources=SMALL)
    session.run("x = 42")
    service = client.services.create(
        "greeter", bootstrap=APP, env={"GREETING": SERVED}, public=True, resources=SMALL
    )
    assert ask_service(served, client) == SERVED
    snapshot = client.snapshots.take(plain.id, name="first")
    frozen.freeze()
    stopped.stop()
    with as_key(served, child) as other:
        childs_own = other.create(resources=SMALL)
    return Made(
        plain=plain.id,
        with_env=with_env.id,
        frozen=frozen.id,
        stopped=stopped.id,
        process=process.process_id,
        session=session.id,
        session_sandbox=session.info.sandbox_id if session.info else "",
        service_sandbox=service.sandbox_id,
        snapshot=snapshot.id,
        volume=volume.id,
        agent=agent,
        child=child,
        childs_own=childs_own.id,
    )


def ask_service(served: Served, client: Sandboxer) -> str:
    """Through the reverse proxy, until it answers."""
    service = client.services.get("greeter")
    assert service.url is not None
    url = httpx.URL(service.url)

    def answer() -> str | None:
        with httpx.Client(trust_env=False, timeout=20) as http:
            try:
                got = http.get(url.copy_with(host="127.0.0.1"), headers={"host": f"{url.host}:{url.port}"})
            except httpx.TransportError:
                return None
        return got.text if got.status_code == 200 else None

    return within(60, answer)


def within(seconds: float, look: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
    return found


def output_so_far(client: Sandboxer, made: Made, wanted: bytes) -> bytes:
    """Of the background process, up to `wanted`."""
    seen = b""
    for piece in client.sandbox(made.plain).processes.output(made.process):
        seen += getattr(piece, "data", b"")
        if wanted in seen:
            return seen
    raise AssertionError(seen)


def segments_of(client: Sandboxer, sandbox_id: str = "") -> list[UsageSegment]:
    """Of one sandbox, or of everything."""
    found: list[UsageSegment] = []
    after = 0
    while page := client.account.usage_segments(after=after, limit=500).segments:
        found += [one for one in page if sandbox_id in one.subject]
        after = page[-1].seq
    return found


def words_in_tables(state_dir: Path, word: str) -> list[str]:
    """Tables that have this word in plain."""
    with closing(sqlite3.connect(state_dir / "sandboxer.db")) as conn:
        tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [name for name in tables if word in repr(conn.execute(f'SELECT * FROM "{name}"').fetchall())]


def words_in_files(state_dir: Path, word: str) -> list[str]:
    """Files of the database that have this word in plain, deleted or not."""
    return [path.name for path in state_dir.glob("sandboxer.db*") if word.encode() in path.read_bytes()]


def checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

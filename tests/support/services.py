"""Services on real walls: a platform without HTTP, and the words to make one quickly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.budget import Budget
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases.access import open_line
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from sandboxer.work.exec import Run
from sandboxer.work.lines import Wanted
from sandboxer.work.services.lifecycle import Health, NewFile, NewService, Restart, Spec
from sandboxer.work.services.records import Service
from sandboxer.work.services.use_cases import ServiceUseCases
from tests.support.http.real import IMAGES, why_not

OWNER = Caller(public_key="key", account=OWNER_ACCOUNT, is_owner=True)
QUICK = Health(interval_s=0.2, timeout_s=2, threshold=2, start_timeout_s=20)
# Answers every path with its process's words; 503 while /tmp/sick is there; crashes on /crash.
APP = """
import http.server, os, sys
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            print("crashing as asked", flush=True)
            os._exit(3)
        words = f"{os.environ.get('GREETING', 'hello')} {os.getpid()}".encode()
        self.send_response(503 if os.path.exists("/tmp/sick") else 200)
        self.send_header("content-length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)
    def log_message(self, *words): print("asked", self.path, flush=True)
print("listening on", os.environ["PORT"], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Hello).serve_forever()
"""
SERVE = Spec(command="exec python3 /workspace/app.py", health=replace(QUICK, path="/"))


@dataclass
class ReopenablePlatform:
    """A platform that can be closed and opened again on the same state."""

    settings: Settings
    platform: Platform = field(init=False)
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self) -> None:
        self.platform = await self._open.enter_async_context(open_platform(self.settings))

    async def close(self) -> None:
        await self._open.aclose()

    @property
    def services(self) -> ServiceUseCases:
        return self.platform.services

    async def create(self, spec: Spec = SERVE, *, name: str = "hello", **more: object) -> Service:
        files = (NewFile(path="app.py", content=APP.encode()),)
        sandbox = CreateRequest(resources=WantedResources(disk_mb=128, memory_mb=128))
        wanted = NewService(name=name, spec=spec, sandbox=sandbox, files=files, **more)  # type: ignore[arg-type]
        return await self.services.create(wanted, OWNER)

    async def ask(self, service: Service, path: str = "/") -> str:
        """What the service answers now, over the port it is known to have now."""
        current = self.services.get(service.id, OWNER)
        async with open_line(self.platform.sandboxes, current.sandbox_id, OWNER, activity="port") as guest:
            assert current.port is not None
            connection = await guest.connect(current.port)
            try:
                await connection.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                answer = b""
                while chunk := await connection.read():
                    answer += chunk
            finally:
                await connection.close()
        return answer.partition(b"\r\n\r\n")[2].decode()

    async def sh(self, service: Service, command: str) -> str:
        run = Run(wanted=Wanted(shell=command), timeout_s=20, output_limit=1 << 20)
        result = await self.platform.work.exec.run(service.sandbox_id, OWNER, run, Budget().lease("owner"))
        return result.stdout.decode()

    async def until(
        self, service: Service, is_so: Callable[[Service], bool], seconds: float = 20.0
    ) -> Service:
        deadline = time.monotonic() + seconds
        while not is_so(found := self.services.get(service.id, OWNER)):
            assert time.monotonic() < deadline, f"it is {found.state}: {found.reason}"
            await asyncio.sleep(0.01)
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ReopenablePlatform]:
    """One for all tests of a module: making a pool takes longer than most of them."""
    if why := why_not():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("services") / "state"
    reopenable = ReopenablePlatform(Settings(state_dir=state, images_dir=IMAGES, pool_size_mb=800))
    try:
        await reopenable.open()
        try:
            yield reopenable
        finally:
            await reopenable.close()
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


@pytest_asyncio.fixture(loop_scope="module")
async def reopenable(shared_platform: ReopenablePlatform) -> AsyncIterator[ReopenablePlatform]:
    yield shared_platform
    for service in (await shared_platform.services.list(OWNER)).records:
        await shared_platform.services.remove(service.id, OWNER)


ONCE = Restart(backoff_s=0.05, max_crashes=2, window_s=60)

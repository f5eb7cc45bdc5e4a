"""One sandbox for each kernel, and its five channels as ports of this machine."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Dict, Unicode

from sandboxer.sdk.adapters.forward import forward
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.errors import SdkError

T = TypeVar("T")
INSIDE = "/tmp/kernel.json"
CHANNELS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
# Chosen here, as nothing else listens in a sandbox that is new.
PORTS = {name: 50_001 + n for n, name in enumerate(CHANNELS)}
INSTALL = "python3 -c 'import ipykernel' 2>/dev/null || pip install -q --break-system-packages ipykernel"


class SandboxProvisioner(KernelProvisionerBase):
    """One sandbox for each kernel; a restarted kernel keeps its sandbox, and so its files."""

    create = Dict(help="What `client.create` takes: image, profile, network, ttl, resources …").tag(
        config=True
    )
    install = Unicode(INSTALL, help="Run in the sandbox before the first kernel.").tag(config=True)

    _sandbox: AsyncSandbox | None = None
    _process_id: str | None = None
    _exit_code: int | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _ports: dict[int, int]

    @property
    def has_process(self) -> bool:
        """Says whether a kernel was started and has not been seen to end."""
        return self._process_id is not None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Makes the sandbox, and writes the connection file for this side of its ports."""
        if self._sandbox is None:
            self._loop = _running_loop()
            self._stack = AsyncExitStack()
            await self._there(self._made())
        manager = self.parent
        for name, port in PORTS.items():
            setattr(manager, name, self._ports[port])
        manager.write_connection_file()
        # As the kernel is called inside; the manager would name the Python of this side.
        words = [*self.kernel_spec.argv, *kwargs.pop("extra_arguments", [])]
        cmd = [word.replace("{connection_file}", INSIDE) for word in words]
        return await super().pre_launch(cmd=cmd, **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Starts the kernel in the sandbox."""
        facts = json.loads(Path(self.parent.connection_file).read_text())
        try:
            await self._there(self._launched(cmd, json.dumps({**facts, **PORTS, "ip": "127.0.0.1"})))
        except BaseException:
            await self.cleanup()
            raise
        self.connection_info = self.parent.get_connection_info()
        return self.connection_info

    async def poll(self) -> int | None:
        """Returns how the kernel ended, or None while it runs."""
        return 0 if self._sandbox is None else await self._there(self._ended(0.0))

    async def wait(self) -> int | None:
        """Returns when the kernel has ended."""
        while self.has_process and await self._there(self._ended(30.0)) is None:
            pass
        self._process_id = None
        return self._exit_code

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel."""
        if self._sandbox is not None and self._process_id is not None:
            name = signal.Signals(signum).name.removeprefix("SIG")
            await self._there(self._sandbox.processes.signal(self._process_id, name))

    async def kill(self, restart: bool = False) -> None:
        """Ends the kernel at once."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Asks the kernel to end."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Removes the sandbox, unless a kernel is started in it again."""
        if restart or self._loop is None:
            return
        await self._there(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = self._sandbox = self._process_id = None

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _made(self) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(AsyncSandboxer())
            wanted = {"network": "packages", "ttl": "12h", **self.create}
            sandbox = await stack.enter_async_context(await client.create(**wanted))
            done = await sandbox.exec(self.install, timeout_s=600)
            if done.exit_code:
                raise SdkError(
                    f"The kernel could not be installed in the sandbox: {done.stderr.strip()[-500:]}",
                    next_step="Use an image that has ipykernel, or a network that reaches a package index.",
                )
            self._ports = await stack.enter_async_context(forward(sandbox, list(PORTS.values())))
            self._sandbox, self._stack = sandbox, stack.pop_all()

    async def _launched(self, cmd: list[str], facts: str) -> None:
        assert self._sandbox is not None
        await self._sandbox.files.write(INSIDE, facts, mode=0o600)
        self._process_id = (await self._sandbox.processes.start(cmd)).process_id
        self._exit_code = None

    async def _ended(self, patience_s: float) -> int | None:
        if self._process_id is not None and self._sandbox is not None:
            self._exit_code = (
                await self._sandbox.processes.wait(self._process_id, timeout_s=patience_s)
            ).exit_code
        return self._exit_code


def _running_loop() -> asyncio.AbstractEventLoop:
    """Of a thread of its own: the ports are served whatever the one who started the kernel does meanwhile."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="sandboxer-kernel").start()
    return loop

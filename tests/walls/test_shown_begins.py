"""The entries of /proc that show a sandbox its limits need an answer before there is a supervisor. Who gives
it is one more process in the cgroup of the sandbox, which may be killed for its memory like any other.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.errors import ProvisionFailed
from tests.support.walls import becomes_true, order_for, traces

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def killed_at_its_answer(backend: NamespacesBackend, number: int) -> AsyncIterator[None]:
    """Which of the launcher's processes answers as a file system so often is killed before the last."""
    running = backend.dependencies.launcher._running  # type: ignore[union-attr]
    assert running is not None
    words = ["-qq", "-f", "-p", str(running.process.pid), "-e", "trace=writev"]
    inject = ["-e", f"inject=writev:signal=KILL:when={number}"]
    said = asyncio.subprocess.PIPE
    tracer = await asyncio.create_subprocess_exec("strace", *words, *inject, stderr=said)
    try:
        status = f"/proc/{running.process.pid}/status"

        def is_traced() -> bool:
            with open(status) as file:
                return f"TracerPid:\t{tracer.pid}\n" in file.read()

        assert await becomes_true(is_traced)
        yield
    finally:
        tracer.terminate()
        await tracer.communicate()


@pytest.mark.parametrize("number", [1, 2, 4])
async def test_when_who_answers_is_killed_the_create_fails_at_once_and_leaves_nothing(
    backend: NamespacesBackend, number: int
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    order = order_for()
    async with killed_at_its_answer(backend, number):
        with pytest.raises(ProvisionFailed) as failed:
            async with asyncio.timeout(5):
                await backend.provision(order)
    assert failed.value.facts["step"] == "shown"
    await backend.teardown(order.sandbox_id)
    assert traces(backend, order.sandbox_id) == []

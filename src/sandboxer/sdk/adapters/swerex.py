"""A SWE-ReX deployment: its server runs in a sandbox of this platform (`sandboxer[swerex]`).

deployment = SandboxerDeployment(image="languages", ttl="2h")
await deployment.start()
await deployment.runtime.create_session(CreateBashSessionRequest())
"""

from __future__ import annotations

import builtins
import logging
import secrets
from contextlib import AsyncExitStack
from typing import Any

from swerex import PACKAGE_NAME, REMOTE_EXECUTABLE_NAME, __version__, exceptions
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import DeploymentNotStartedError
from swerex.runtime.abstract import IsAliveResponse, _ExceptionTransfer
from swerex.runtime.remote import RemoteRuntime
from swerex.utils.log import get_logger

from sandboxer.sdk.adapters.forward import forward
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.errors import SdkError

PORT = 8000
# Of the same version as this side, unless the image has one already.
INSTALL = (
    f"command -v {REMOTE_EXECUTABLE_NAME} ||"
    f" pip install -q --break-system-packages {PACKAGE_NAME}=={__version__}"
)
INSTALL_TIMEOUT_S = 600.0
_ERRORS = {"builtins": builtins, "swerex.exceptions": exceptions}


class Runtime(RemoteRuntime):
    """Raises what the server says went wrong, if that is an error of Python's or of SWE-ReX's own.

    The client of SWE-ReX imports and calls whatever is named, and what runs inside may be the server.
    """

    def _handle_transfer_exception(self, exc_transfer: _ExceptionTransfer) -> None:
        module, _, name = exc_transfer.class_path.rpartition(".")
        known = getattr(_ERRORS.get(module), name, None)
        if not (isinstance(known, type) and issubclass(known, Exception)):
            exc_transfer = exc_transfer.model_copy(update={"class_path": "swerex.exceptions.SwerexException"})
        super()._handle_transfer_exception(exc_transfer)


class SandboxerDeployment(AbstractDeployment):
    """Makes a sandbox, has SWE-ReX's server run in it, and speaks with that by a port of this machine."""

    def __init__(
        self,
        *,
        client: AsyncSandboxer | None = None,
        install: str = INSTALL,
        startup_timeout_s: float = 60.0,
        logger: logging.Logger | None = None,
        **sandbox: Any,
    ) -> None:
        """`sandbox` is what `client.create` takes. `install` is run in it first; where the image has the
        server already, `network="none"` will do."""
        self.logger = logger or get_logger("rex-deploy")
        self._client = client
        self._install, self._startup_timeout_s = install, startup_timeout_s
        self._wanted = {"network": "packages", "ttl": "6h", **sandbox}
        self._hooks = CombinedDeploymentHook()
        self._stack = AsyncExitStack()
        self._sandbox: AsyncSandbox | None = None
        self._runtime: RemoteRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        """Has a hook told of each step."""
        self._hooks.add_hook(hook)

    @property
    def sandbox_id(self) -> str | None:
        """The sandbox of this deployment, once it is there."""
        return None if self._sandbox is None else self._sandbox.id

    @property
    def runtime(self) -> RemoteRuntime:
        """Returns what commands and files are asked of."""
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Says whether SWE-ReX's server answers."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Makes the sandbox and waits for the server in it; what was made is gone again if that fails."""
        async with AsyncExitStack() as stack:
            client = self._client
            if client is None:
                client = await stack.enter_async_context(AsyncSandboxer())
            self._hooks.on_custom_step("Making a sandbox")
            sandbox = await stack.enter_async_context(await client.create(**self._wanted))
            self._hooks.on_custom_step("Installing SWE-ReX in it")
            await self._installed(sandbox)
            self._hooks.on_custom_step("Starting runtime")
            token = secrets.token_urlsafe(24)
            words = ["--host", "127.0.0.1", "--port", str(PORT), "--auth-token", token]
            await sandbox.processes.start([REMOTE_EXECUTABLE_NAME, *words])
            here = await stack.enter_async_context(forward(sandbox, [PORT]))
            runtime = Runtime(
                host="http://127.0.0.1", port=here[PORT], auth_token=token, timeout=1.0, logger=self.logger
            )
            await runtime.wait_until_alive(timeout=self._startup_timeout_s)
            self._stack, self._sandbox, self._runtime = stack.pop_all(), sandbox, runtime

    async def stop(self) -> None:
        """Ends the server and removes the sandbox; stopped already is success."""
        runtime, self._runtime = self._runtime, None
        stack, self._stack = self._stack, AsyncExitStack()
        async with stack:
            if runtime is not None:
                await runtime.close()

    async def _installed(self, sandbox: AsyncSandbox) -> None:
        done = await sandbox.exec(self._install, timeout_s=INSTALL_TIMEOUT_S)
        if done.exit_code:
            raise SdkError(
                f"SWE-ReX could not be installed in the sandbox: {done.stderr.strip()[-500:]}",
                next_step="Use an image that has swe-rex, or a network that reaches a package index.",
            )

"""A sandbox for each sample of an Inspect evaluation: `sandbox="sandboxer"` (`sandboxer[inspect]`).

Commands and files are of one user, who is not root unless a command says so: what is forbidden to a model is
then forbidden to whoever reads and writes on its behalf, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, overload

import yaml
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from sandboxer.sdk.adapters.hands import Hands, TooLarge
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.errors import InvalidRequest

LABELS = {"inspect": "sample"}


class SandboxerConfig(BaseModel):
    """What each sample's sandbox is made of; what is left out is the platform's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str | None = None
    image: str | None = None
    network: str | None = None
    # Whatever becomes of the evaluation, it costs no longer than this.
    ttl: str = "6h"
    resources: dict[str, float] | None = None
    env: dict[str, str] | None = None
    user: str = "user"
    workdir: str = "/workspace"


@sandboxenv(name="sandboxer")
class SandboxerEnvironment(SandboxEnvironment):
    """One sandbox, as Inspect's tools, scorers and setup scripts use it."""

    def __init__(self, client: AsyncSandboxer, hands: Hands) -> None:
        super().__init__()
        self._client, self._hands = client, hands

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Reads the configuration of a task's file or log."""
        return SandboxerConfig.model_validate(config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Makes the sandbox of a sample, with the key that a client without arguments finds."""
        wanted = _configured(config)
        client = AsyncSandboxer()
        try:
            made = wanted.model_dump(exclude={"user", "workdir"}, exclude_none=True)
            sandbox = await client.create(**made, labels=LABELS)
        except BaseException:
            await client.close()
            raise
        return {"default": cls(client, Hands(sandbox, user=wanted.user, workdir=wanted.workdir))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Removes the sandbox, after an interruption too: it would cost until its time is over."""
        for environment in environments.values():
            own = environment.as_type(cls)
            await own._hands.sandbox.destroy()
            await own._client.close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Removes one sandbox, or all of this key (`inspect sandbox cleanup sandboxer`)."""
        async with AsyncSandboxer() as client:
            async for found in client.list(labels=LABELS):
                if id in (None, found.id):
                    await client.sandbox(found.id).destroy()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command. One that ran out of time is not run again: it may have done half of its work."""
        most, most_said = (
            SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
            SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
        )
        try:
            done = await self._hands.run(
                cmd, _bytes(input), cwd=cwd, env=env, user=user, timeout_s=timeout, output_limit_bytes=most
            )
        except InvalidRequest as refused:
            if user is None:
                raise
            return ExecResult(False, 1, "", f"{user}: {refused}")
        if done.timed_out:
            raise TimeoutError(f"The command had not ended after {timeout} s.")
        if done.truncated:
            raise OutputLimitExceededError(most_said, done.stdout)
        if done.exit_code == 126 and "permission denied" in done.stderr.lower():
            raise PermissionError(f"{cmd[0]}: {done.stderr.strip()}")
        return ExecResult(done.exit_code == 0, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file as the user, with the folders above it."""
        await self._hands.write(file, _bytes(contents) or b"")

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file as the user."""
        try:
            content = await self._hands.read(file, most=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except TooLarge as error:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Says how a person gets a shell in it."""
        return SandboxConnection(type="sandboxer", command=f"sandboxer shell {self._hands.sandbox.id}")


def _configured(config: SandboxEnvironmentConfigType | None) -> SandboxerConfig:
    """Reads it; a text is the path of a YAML file (`--sandbox sandboxer:box.yaml`).

    Anything else is refused: a sandbox without the walls that were asked for looks no different.
    """
    if config is None or isinstance(config, SandboxerConfig):
        return config or SandboxerConfig()
    if isinstance(config, str):
        return SandboxerConfig.model_validate(yaml.safe_load(Path(config).read_text()))
    raise TypeError(
        f"A configuration is SandboxerConfig or the path of a YAML file, not {type(config).__name__}"
    )


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given

"""A line is an open connection to one sandbox, with what every command in it needs: environment, working
directory, shell, tag. The package reaches sandboxes only through it.

A tag records what a process was started for, so that lists can tell a background process from a terminal. If
a sandbox goes away under its work, the error raised here says why: no sats, a spending cap, or a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

from sandboxer.backends.guest import Command, Guest, Process, TerminalSize
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, InvalidRequest, PathNotFound, SandboxerError
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.sandboxes.demands import ended_by_money
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line

# Exit codes from here on mean that a signal ended the process.
SIGNALLED = 128


@brief_value_class
class Line:
    guest: Guest
    # The environment that the sandbox gives to every command.
    env: Mapping[str, str]


class Lines:
    def __init__(self, sandboxes: SandboxDependencies) -> None:
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def open(self, sandbox_id: str, caller: Caller, activity: ActivityKind) -> AsyncIterator[Line]:
        """Opens a line; the sandbox counts as working meanwhile. Raises NotFound, IllegalTransition,
        BackendLost; and InsufficientCredit or Forbidden if lack of money ended the sandbox during the work.
        """
        sandbox = await self._sandboxes.visible(sandbox_id, caller)
        try:
            async with open_line(self._sandboxes, sandbox_id, caller, activity=activity) as guest:
                yield Line(guest, self._sandboxes.environment(sandbox))
        except (BackendLost, BaseExceptionGroup) as error:
            loss = error if isinstance(error, BackendLost) else _loss_in(error)
            cause = None if loss is None else await loss_of(self._sandboxes, sandbox_id, loss)
            if cause is None or cause is loss:
                raise
            raise cause from error

    async def check_standing(self, sandbox_id: str, exit_code: int | None) -> None:
        """Raises what `open` raises, for a program that was killed because its sandbox went away."""
        if exit_code is None or exit_code < SIGNALLED:
            return
        await self._sandboxes.operations.ended(sandbox_id)
        known = self._sandboxes.repository.peek(sandbox_id)
        if known is None or known.state not in LIVE:
            loss = BackendLost(why="the program was killed with its sandbox")
            raise await loss_of(self._sandboxes, sandbox_id, loss)


async def loss_of(sandboxes: SandboxDependencies, sandbox_id: str, error: SandboxerError) -> SandboxerError:
    """Returns the same loss with what became of the sandbox: reaped, expired, destroyed by someone.

    If money ended the sandbox, the error says so to the account that pays.
    """
    await sandboxes.operations.ended(sandbox_id)
    if (found := await sandboxes.repository.find(sandbox_id)) is None or found.state in LIVE:
        return error
    why = f"the sandbox became {found.state.value} ({found.reason}) meanwhile"
    facts = {"sandbox_id": sandbox_id, "state": found.state.value, "reason": found.reason}
    return ended_by_money(found) or BackendLost(**{**error.facts, "why": why, **facts})


def _loss_in(group: BaseExceptionGroup[BaseException]) -> BackendLost | None:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            error = _loss_in(error) or error
        if isinstance(error, BackendLost):
            return error
    return None


class RateLimit:
    """How fast the server reads what one program says: a burst, then so much a second. `spend` returns at
    once while there is something left, and else when the debt is paid off.

    Reading costs the one loop that serves everybody; who is read more slowly waits at its own full pipe.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._at = asyncio.get_running_loop().time()

    async def spend(self, amount: int) -> None:
        now = asyncio.get_running_loop().time()
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate) - amount
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)


WORKSPACE = "/workspace"
# Not a login shell: reading profile files costs milliseconds and makes a command depend on the image. It is
# bash because agents write bash; an image without it gets sh.
SHELLS = ("/bin/bash", "/bin/sh")
DEFAULT_ENV: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
# The kernel takes 128 KiB for one string and a quarter of the stack for all; past that exec says E2BIG.
MAX_ARGUMENTS_BYTES = 2 * 1024 * 1024
MAX_STRING_BYTES = 128 * 1024


# Tags that callers cannot use: they mark processes that are not background processes.
EXEC_TAG = "@exec"
TERMINAL_TAG = "@terminal"


@value_class
class Wanted:
    """A command as the caller asked for it: exactly one of `shell` and `argv` is given."""

    shell: str | None = None
    argv: Sequence[str] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


def merged_env(sandbox_env: Mapping[str, str], wanted: Wanted) -> Mapping[str, str]:
    """Merges environments; later ones win: defaults, the sandbox's, the command's own."""
    env = {**DEFAULT_ENV, **sandbox_env, **wanted.env}
    if wanted.user not in (None, "root", "0") and "HOME" not in wanted.env and "HOME" not in sandbox_env:
        # Only the sandbox knows another user's home directory; the supervisor fills it in.
        del env["HOME"]
    return env


async def launch(
    guest: Guest,
    wanted: Wanted,
    sandbox_env: Mapping[str, str],
    *,
    tag: str,
    has_stdin: bool = False,
    terminal: TerminalSize | None = None,
    deadline: float | None = None,
    keep: bool = True,
    process_id: str | None = None,
) -> Process:
    """Starts the command. The usual folder and shell are tried first, without asking beforehand whether they
    exist.
    """
    env = merged_env(sandbox_env, wanted)
    cwd = wanted.cwd or WORKSPACE
    shell = SHELLS[0]
    while True:
        argv = wanted.argv or (shell, "-c", wanted.shell or "")
        _check_size(argv, env)
        command = Command(
            argv=argv,
            env=env,
            cwd=cwd,
            user=wanted.user or "root",
            terminal=terminal,
            has_stdin=has_stdin,
            tag=tag,
            deadline=deadline,
            keep=keep,
        )
        try:
            return await guest.run(command, process_id=process_id)
        except PathNotFound as error:
            missing = error.facts.get("path")
            if missing == cwd and wanted.cwd is None and cwd == WORKSPACE:
                cwd = "/"
            elif missing == shell and wanted.argv is None and shell == SHELLS[0]:
                shell = SHELLS[1]
            else:
                raise
            # The failed attempt may still be ending under its id.
            process_id = process_id and new_id(process_id.partition("_")[0])


def _check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuses with a clear name what execve would refuse with E2BIG."""
    total = 0
    for text in (*argv, *(f"{name}={value}" for name, value in env.items())):
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
        if size >= MAX_STRING_BYTES:
            raise InvalidRequest(
                field="argv", why=f"one argument or variable is larger than {MAX_STRING_BYTES} bytes"
            )
        total += size + 9
    if total > MAX_ARGUMENTS_BYTES:
        raise InvalidRequest(
            field="argv", why=f"arguments and environment exceed {MAX_ARGUMENTS_BYTES} bytes"
        )

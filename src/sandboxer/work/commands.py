"""How words of a caller become a command inside: environment, working directory, shell, tag.

A tag marks what a process was started for, so that lists can tell a background process from a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandboxer.backends.guest import Command, Guest, Process, TerminalSize
from sandboxer.kernel.errors import InvalidRequest, PathNotFound
from sandboxer.kernel.ids import new_id

WORKSPACE = "/workspace"
# Not a login shell: reading profile files costs milliseconds and makes a command depend on the image.
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


# Words a caller cannot use as a tag: what a process was started for, when it is not a background process.
EXEC_TAG = "@exec"
TERMINAL_TAG = "@terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A command as a caller wants it: exactly one of `shell` and `argv`."""

    shell: str | None = None
    argv: Sequence[str] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


def merged_env(sandbox_env: Mapping[str, str], wanted: Wanted) -> Mapping[str, str]:
    """Later wins: defaults, the sandbox's, the command's own."""
    env = {**DEFAULT_ENV, **sandbox_env, **wanted.env}
    if wanted.user not in (None, "root", "0") and "HOME" not in wanted.env and "HOME" not in sandbox_env:
        # Only the sandbox knows another user's home; the supervisor fills it in.
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
    """Start it. The usual folder and shell are tried first, without a question beforehand."""
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
            # The failed try may still be leaving under its id.
            process_id = process_id and new_id(process_id.partition("_")[0])


def _check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """What execve would refuse with E2BIG is refused here with a name."""
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

"""Exit codes of the CLI, in one place: scripts and agents rely on them.

    0  done
    1  something went wrong here (a local file, a bug, a check that failed)
    2  the command line is wrong
    3  not authenticated: no key, wrong key, wrong clock
    4  the platform refused: change something and try again
    5  the platform is unavailable: not running, full, or too slow; try again later
  130  interrupted

`run`, `exec` and `shell` return the exit code of the command inside; `--json` tells the two apart.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from enum import IntEnum

from sandboxer.kernel.errors import Refused as KernelRefused
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.kernel.errors import Unavailable as KernelUnavailable
from sandboxer.sdk.errors import ApiError, AuthenticationFailed, MissingCredentials, Unavailable, Unreachable


class Exit(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    AUTH = 3
    REFUSED = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


EXIT_HELP = (
    "Exit codes: 0 done, 1 error, 2 wrong usage, 3 not authenticated, 4 refused by the platform, "
    "5 unavailable or timed out, 130 interrupted. [bold]run[/], [bold]exec[/] and [bold]shell[/] "
    "return the code of the command inside."
)


def exit_of(error: BaseException) -> Exit:
    match error:
        case AuthenticationFailed() | MissingCredentials() | Unauthenticated():
            return Exit.AUTH
        case Unavailable() | Unreachable() | KernelUnavailable():
            return Exit.UNAVAILABLE
        case ApiError() | KernelRefused():
            return Exit.REFUSED
        case KeyboardInterrupt():
            return Exit.INTERRUPTED
        case _:
            return Exit.ERROR


class CommandFailed(SandboxerError):
    """{why}"""

    code = "command_failed"
    next_step = ""

    def __init__(self, why: str, *, next_step: str | None = None) -> None:
        super().__init__(why=why)
        # Each failure of the CLI itself knows its own remedy.
        self.remedy = next_step or self.next_step


_ROOTS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def demand_root(act: str) -> None:
    """Raises CommandFailed with the command to repeat, unless this is root, whose PATH leads into no venv."""
    if os.geteuid() != 0:
        program = "sandboxer" if shutil.which("sandboxer", path=_ROOTS_PATH) else os.path.abspath(sys.argv[0])
        again = shlex.join(["sudo", program, *sys.argv[1:]])
        raise CommandFailed(f"{act}, which needs root.", next_step=f"Run: {again}")


# Modules of Python itself that other systems than Linux have not.
_OF_LINUX = frozenset({"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"})
_EXTRAS = {"eth_account": "payer", "x402": "payer", "mcp": "mcp", "mcp_types": "mcp"}


def missing_part(error: ModuleNotFoundError) -> Exception:
    """What to say where a part is not installed: the client alone has no platform in it."""
    if (name := (error.name or "").partition(".")[0]) in _OF_LINUX:
        return CommandFailed(
            f"This needs Python's {name}, which this system has not.", next_step="Run it on Linux."
        )
    if name == "sandboxer":
        return error
    extra = _EXTRAS.get(name, "server")
    return CommandFailed(
        f"This needs more than the client: {name} is not installed.",
        next_step=f"Install it: pip install 'sandboxer[{extra}]'",
    )

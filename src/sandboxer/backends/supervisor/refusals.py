"""Turns an ERROR frame into the one error a caller can act on. An errno alone says too little: the stage
tells whose path it was about."""

from __future__ import annotations

import errno

from sandboxer.backends.supervisor.codec import Fields, Stage, Tag
from sandboxer.kernel.errors import (
    Conflict,
    DirectoryNotEmpty,
    DiskFull,
    GuestMisbehaved,
    GuestRefused,
    InvalidRequest,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    NotAvailable,
    NotFound,
    PathExists,
    PathNotFound,
    PermissionDenied,
    SandboxerError,
)

_BY_ERRNO: dict[int, type[GuestRefused]] = {
    errno.ENOENT: PathNotFound,
    errno.EEXIST: PathExists,
    errno.ENOTDIR: NotADirectory,
    errno.EISDIR: IsADirectory,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
    errno.ENOTEMPTY: DirectoryNotEmpty,
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
}

# What {path} stands for in the message when the error is about no path.
_SUBJECT = {
    Stage.FORK: "a new process",
    Stage.CGROUP: "entering the command's cgroup",
    Stage.TERMINAL: "a new terminal",
    Stage.STDIO: "/dev/null",
    Stage.LIMIT: "one more process or stream",
    Stage.WATCH: "one more watch",
    Stage.REQUEST: "the request",
}


def refusal(
    payload: bytes, *, subject: str, target: str = "", cwd: str = "", user: str = ""
) -> SandboxerError:
    """`subject` is what the request was about: a path, a process id, the program."""
    answer = Fields(payload)
    number, stage = answer.u32(Tag.ERRNO, most=4095), answer.u32(Tag.STAGE, most=255)
    name = errno.errorcode.get(number, f"E{number}")
    match stage:
        case Stage.VERSION:
            return GuestMisbehaved(why="it speaks no version that we know")
        case Stage.USER if number in (errno.ENOENT, errno.EINVAL):
            return InvalidRequest(field="user", why=f"no user {user!r} in the sandbox")
        case Stage.PROCESS:
            return _about_process(number, name, subject)
        case Stage.REQUEST if number == errno.ENOSYS:
            return NotAvailable(what="this operation", why="the sandbox has an older supervisor")
        case Stage.NOT_REGULAR:
            return NotARegularFile(path=subject, errno_name=name)
        case Stage.PATH | Stage.EXEC | Stage.CWD | Stage.TARGET:
            path = {Stage.CWD: cwd, Stage.TARGET: target}.get(Stage(stage), subject)
            return _BY_ERRNO.get(number, GuestRefused)(path=path, errno_name=name)
        case Stage.CONNECT:
            return GuestRefused(path=subject, errno_name=name)
        case _:
            return GuestRefused(path=_SUBJECT.get(_stage(stage), subject), errno_name=name)


def _stage(number: int) -> Stage:
    return Stage(number) if number in Stage._value2member_map_ else Stage.REQUEST


def _about_process(number: int, name: str, process_id: str) -> SandboxerError:
    match number:
        case errno.ESRCH:
            return NotFound(what="process", id=process_id)
        case errno.EEXIST:
            return Conflict(why=f"process id {process_id} is in use")
        case errno.EBUSY:
            return Conflict(why=f"process {process_id} still runs or is being read")
        case errno.ENOTTY:
            return Conflict(why=f"process {process_id} has no terminal")
        case errno.EINVAL:
            return InvalidRequest(field="signal or size", why="out of range")
        case _:
            return GuestRefused(path=process_id, errno_name=name)

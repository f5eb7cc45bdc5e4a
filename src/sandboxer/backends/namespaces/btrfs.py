"""Makes the few btrfs calls that the pool needs as ioctls: the tools cost a process each, and those of
Debian 12 know no simple quotas.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from sandboxer.backends.shared import opened
from sandboxer.kernel.values import value_class

_RESIZE = 0x50009403
_SUBVOL_CREATE = 0x5000940E
_SNAP_DESTROY = 0x5000940F
_SNAP_CREATE = 0x50009417
_SUBVOL_INFO = 0x81F8943C
_QGROUP_LIMIT = 0x8030942B
_INO_LOOKUP = 0xD0009412
_FS_INFO = 0x8400941F
_QUOTA_CTL = 0xC0109428
_QGROUP_CREATE = 0x4010942A
_QGROUP_ASSIGN = 0x40189429

_QUOTA_ENABLE = 1
_QUOTA_ENABLE_SIMPLE = 4
_FIRST_FREE_OBJECT = 256
# The quota group above those of all subvolumes, and that of the file system's own tree.
_ALL, _TOP = (1 << 48) | 1, 5
_READ_ONLY = 2
_ROOT_READ_ONLY = 1
_LIMIT_REFERENCED = 1
_EXCHANGE = 2

# `fcntl.ioctl` keeps the interpreter locked while it waits, for arguments of this size: everybody would wait.
_libc = ctypes.CDLL(None, use_errno=True)


@value_class
class Subvolume:
    uuid: str
    is_read_only: bool
    # Of the last transaction that changed a file in it; moving its blocks about does not count.
    changed: int


def is_btrfs(path: Path) -> bool:
    """Says whether `path` lies on btrfs: only there do these calls work."""
    with opened(path) as fd:
        try:
            fcntl.ioctl(fd, _FS_INFO, bytearray(1024))
        except OSError:
            return False
    return True


def filesystem_id(fd: int) -> str:
    """Returns the id of the file system as it appears under /sys/fs/btrfs."""
    info = bytearray(1024)
    fcntl.ioctl(fd, _FS_INFO, info)
    raw = bytes(info[16:32]).hex()
    return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))


def resize(fd: int, size: str) -> None:
    """Resizes the file system on its one device: bytes, or `max` for all that the device has."""
    if _ioctl(fd, _RESIZE, _named(f"1:{size}")) > 0:
        # Of btrfs alone, and no success: a balance or a change of size is under way, or was left half done.
        raise OSError(errno.EBUSY, "another change of the file system is under way")


def create_subvolume(parent_fd: int, name: str) -> None:
    _ioctl(parent_fd, _SUBVOL_CREATE, _named(name))


def delete_subvolume(parent_fd: int, name: str) -> None:
    """Deletes a subvolume. It is gone at once; its space is freed later, by the kernel's cleaner."""
    _ioctl(parent_fd, _SNAP_DESTROY, _named(name))


def snapshot(source_fd: int, parent_fd: int, name: str, *, read_only: bool) -> None:
    """Makes a copy of everything written by now, open files included, and waits until that has reached
    the disk.
    """
    args = bytearray(4096)
    struct.pack_into("=qQQ", args, 0, source_fd, 0, _READ_ONLY if read_only else 0)
    encoded = name.encode()
    args[56 : 56 + len(encoded)] = encoded
    _ioctl(parent_fd, _SNAP_CREATE, args)


def look_at(fd: int) -> Subvolume:
    info = bytearray(504)
    _ioctl(fd, _SUBVOL_INFO, info)
    flags: int = struct.unpack_from("=Q", info, 288)[0]
    changed: int = struct.unpack_from("=Q", info, 344)[0]
    return Subvolume(uuid=info[296:312].hex(), is_read_only=bool(flags & _ROOT_READ_ONLY), changed=changed)


def limit(pool_fd: int, number: int, limit_bytes: int) -> None:
    """Limits what a subvolume may hold, and puts it below the limit of all, where there is one. `pool_fd` is
    of the file system's own tree: who asks is charged with the change, and a full disk has nothing left.
    """
    _limit_group(pool_fd, number, limit_bytes)
    _assign(pool_fd, number)


def limit_all(pool_fd: int, limit_bytes: int) -> None:
    """Limits what all disks together may hold."""
    _limit_group(pool_fd, _ALL, limit_bytes)


def gather_all(pool_fd: int, numbers: Iterable[int]) -> None:
    """Puts the subvolumes of `numbers` below one limit, where there are simple quotas. The file system's own
    tree stays out of it: at the limit no disk could be removed, nor the limit be changed.
    """
    with contextlib.suppress(FileExistsError):
        fcntl.ioctl(pool_fd, _QGROUP_CREATE, bytearray(struct.pack("=QQ", 1, _ALL)))
    for number in numbers:
        if number != _TOP:
            try:
                _assign(pool_fd, number)
            except OSError as error:
                # The kernel's word for a group that is not there: it was removed since it was listed.
                if error.errno != errno.EINVAL:
                    raise


def _assign(pool_fd: int, number: int) -> None:
    # There is none, it was removed meanwhile, or it is in it since an earlier start.
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        fcntl.ioctl(pool_fd, _QGROUP_ASSIGN, bytearray(struct.pack("=QQQ", 1, number, _ALL)))


def _limit_group(fd: int, group: int, limit_bytes: int) -> None:
    args = struct.pack("=QQQQQQ", group, _LIMIT_REFERENCED, limit_bytes, 0, 0, 0)
    _ioctl(fd, _QGROUP_LIMIT, bytearray(args))


def flush(fd: int) -> None:
    """Flushes the whole file system: what is still in memory is not counted."""
    _raise_if(_libc.syncfs(fd) < 0)


def exchange(parent_fd: int, one: str, other: str) -> None:
    """Exchanges two names in one step."""
    _raise_if(_libc.renameat2(parent_fd, one.encode(), parent_fd, other.encode(), _EXCHANGE), one)


def subvolume_id(fd: int) -> int:
    args = bytearray(4096)
    struct.pack_into("=QQ", args, 0, 0, _FIRST_FREE_OBJECT)
    fcntl.ioctl(fd, _INO_LOOKUP, args)
    number: int = struct.unpack_from("=Q", args)[0]
    return number


def enable_quota(fd: int) -> str:
    """Enables simple quotas where the kernel has them (a snapshot or delete costs nothing), full ones
    elsewhere.
    """
    for command, kind in ((_QUOTA_ENABLE_SIMPLE, "simple"), (_QUOTA_ENABLE, "full")):
        try:
            fcntl.ioctl(fd, _QUOTA_CTL, bytearray(struct.pack("=QQ", command, 0)))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP):
                raise
        else:
            return kind
    return "none"


def quota_of(fd: int) -> str:
    """Returns the kind of quota that is enabled. Changes nothing."""
    try:
        with open(f"/sys/fs/btrfs/{filesystem_id(fd)}/qgroups/mode", encoding="ascii") as file:
            return {"squota": "simple", "qgroup": "full"}.get(file.read().strip(), "none")
    except OSError:
        return "none"


def forget_quota(fd: int, number: int) -> None:
    """Removes the quota group of a deleted subvolume. Kernels since 6.12 do it themselves."""
    try:
        fcntl.ioctl(fd, _QGROUP_CREATE, bytearray(struct.pack("=QQ", 0, number)))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EBUSY, errno.ENOTCONN):
            raise


def _named(name: str) -> bytearray:
    args = bytearray(4096)
    encoded = name.encode()
    args[8 : 8 + len(encoded)] = encoded
    return args


def _ioctl(fd: int, request: int, args: bytearray) -> int:
    """Returns the kernel's answer; what one above zero means is a matter of the request."""
    buffer = (ctypes.c_char * len(args)).from_buffer(args)
    answer: int = _libc.ioctl(fd, ctypes.c_ulong(request), buffer)
    _raise_if(answer < 0)
    return answer


def _raise_if(has_failed: object, *path: str) -> None:
    if has_failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), *path)

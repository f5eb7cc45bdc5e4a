"""The few btrfs calls the pool needs, as ioctls: the tools cost a process each, and Debian 12's know no
simple quotas."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

_SNAP_DESTROY = 0x5000940F
_INO_LOOKUP = 0xD0009412
_FS_INFO = 0x8400941F
_QUOTA_CTL = 0xC0109428
_QGROUP_CREATE = 0x4010942A

_QUOTA_ENABLE = 1
_QUOTA_ENABLE_SIMPLE = 4
_FIRST_FREE_OBJECT = 256


def is_btrfs(path: Path) -> bool:
    """Whether `path` lies on btrfs: only there do these calls mean what they say."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _FS_INFO, bytearray(1024))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def filesystem_id(fd: int) -> str:
    """As it appears under /sys/fs/btrfs."""
    info = bytearray(1024)
    fcntl.ioctl(fd, _FS_INFO, info)
    raw = bytes(info[16:32]).hex()
    return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))


def delete_subvolume(parent_fd: int, name: str) -> None:
    """At once for everyone who looks; its space comes back when the kernel's cleaner has passed."""
    fcntl.ioctl(parent_fd, _SNAP_DESTROY, _named(name))


def subvolume_id(fd: int) -> int:
    args = bytearray(4096)
    struct.pack_into("=QQ", args, 0, 0, _FIRST_FREE_OBJECT)
    fcntl.ioctl(fd, _INO_LOOKUP, args)
    number: int = struct.unpack_from("=Q", args)[0]
    return number


def enable_quota(fd: int) -> str:
    """Simple quotas where the kernel has them (a snapshot or delete costs nothing), full ones elsewhere."""
    for command, kind in ((_QUOTA_ENABLE_SIMPLE, "simple"), (_QUOTA_ENABLE, "full")):
        try:
            fcntl.ioctl(fd, _QUOTA_CTL, bytearray(struct.pack("=QQ", command, 0)))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP):
                raise
        else:
            return kind
    return "none"


def forget_quota(fd: int, number: int) -> None:
    """Kernels before 6.12 leave a deleted subvolume's group behind; newer ones have removed it already."""
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

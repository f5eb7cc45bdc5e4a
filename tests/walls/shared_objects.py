"""Run inside a sandbox: which kernel objects it can reach, and what locking and watching them shows.

python3 - survey            prints `dev:ino path` of everything that can be reached by a path
python3 - hold              locks and watches all of it, prints `held`, waits for a line, prints what it saw
python3 - touch             opens, reads and locks all of it, prints what somebody else holds
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
IN_ALL_EVENTS = 0xFFF
# The base image's own files: enough of them to see that the overlay parts sandboxes.
OF_THE_IMAGE = ("/bin/sh", "/etc/passwd", "/usr/bin/env", "/usr/lib", "/etc")


def skipped(folder: str, name: str) -> bool:
    """Other processes of the same sandbox, and the tasks of this one."""
    return (folder == "/proc" and name.isdigit()) or folder.startswith(
        ("/proc/self/task", "/proc/thread-self")
    )


def paths() -> list[str]:
    found = ["/", *OF_THE_IMAGE]
    for top in ("/dev", "/proc", "/sys", "/run", "/data", "/proc/self/ns", "/proc/self/fd"):
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if not skipped(folder, name)]
            found += [folder, *(os.path.join(folder, name) for name in (*folders, *files))]
    own = ("/proc/self/fdinfo", "/dev/std", "/dev/fd")
    return [path for path in dict.fromkeys(found) if not path.startswith(own)]


def survey() -> None:
    for path in paths():
        for look in (os.stat, os.lstat):
            try:
                seen = look(path)
            except OSError:
                continue
            print(f"{seen.st_dev:x}:{seen.st_ino}", path)
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        seen = os.fstat(fd)
        print(f"{seen.st_dev:x}:{seen.st_ino}", name)


def lockable() -> list[tuple[str, int]]:
    """Descriptors of all that can be opened without waiting for somebody or acting on something, one each."""
    opened = []
    known = set()
    for path in paths():
        if path.startswith(("/proc/sys/", "/proc/self/")) and not path.startswith("/proc/self/ns"):
            continue
        try:
            seen = os.stat(path)
            mode = seen.st_mode
            if (seen.st_dev, seen.st_ino) in known:
                continue
            known.add((seen.st_dev, seen.st_ino))
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
                for how in (os.O_RDWR if stat.S_ISCHR(mode) else 0, 0):
                    try:
                        opened.append((path, os.open(path, flags | how)))
                        break
                    except OSError:
                        continue
        except OSError:
            continue
    return opened


def tries(fd: int) -> list[str]:
    """Of every kind of lock: which one somebody else holds."""
    acquired = []
    ofd = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 7, 1, 0)
    for name, act in (
        ("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        ("posix", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 3)),
        ("ofd", lambda: fcntl.fcntl(fd, 37, ofd)),
        ("lease", lambda: fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)),
    ):
        try:
            act()
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                acquired.append(name)
    return acquired


def hold() -> None:
    opened = lockable()
    for _, fd in opened:
        tries(fd)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    names = {}
    for path in paths():
        if not path.startswith(("/proc/self/fd", "/proc/sys/")):
            names[libc.inotify_add_watch(watch, path.encode(), IN_ALL_EVENTS)] = path
    print(f"held {len(opened)} {len(names)}", flush=True)
    # Not by `input()`: reading must open nothing.
    os.read(0, 1)
    try:
        data = os.read(watch, 1 << 20)
    except BlockingIOError:
        data = b""
    at = 0
    while at < len(data):
        number, mask, _, size = struct.unpack_from("iIII", data, at)
        print(f"{names.get(number, '?')} {mask:x}")
        at += 16 + size


def touch() -> None:
    for path, fd in lockable():
        for name in tries(fd):
            print(path, name)
        if stat.S_ISCHR(os.fstat(fd).st_mode) and "pt" not in path and "tty" not in path:
            # Of a kernel of its own some are no use to anybody without their file system.
            with contextlib.suppress(OSError):
                os.write(fd, b"") if path != "/dev/full" else None
                os.read(fd, 1)
    print("touched")


{"survey": survey, "hold": hold, "touch": touch}[sys.argv[1]]()

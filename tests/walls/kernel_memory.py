"""Run inside a sandbox: makes the kernel hold memory that no page of a process is.

Each says how far it came, waits for a line, and lets go. All are bounded by the number given: the host must
not suffer where a wall is missing.

    filters|locks|ofd|anonymous|anonymous_ofd|files|disk_files|netlink|corked COUNT, tcp|udp MEGABYTES
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys

A_FILE = 500
F_OFD_SETLK = 37


def lock(fd: int, number: int, kind: int, command: int) -> None:
    """Every other byte, so that no two become one."""
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, 0, 2 * number, 1, 0))


def locks(count: int, command: int = fcntl.F_SETLK) -> int:
    """A few hundred on each file: among all on one, each new one would have to be looked for."""
    for number in range(count):
        if number % A_FILE == 0:
            fd = os.open(f"/tmp/locked-{number}", os.O_RDWR | os.O_CREAT)
        lock(fd, number % A_FILE, fcntl.F_WRLCK, command)
    return count


def anonymous(count: int, command: int = fcntl.F_SETLK) -> int:
    """On an eventfd, whose inode is one in the whole kernel."""
    fd = os.eventfd(0)
    for number in range(count):
        lock(fd, number, fcntl.F_RDLCK, command)
    return count


KEPT: list[object] = []


def fill(sender: socket.socket, left: int) -> int:
    sent = 0
    sender.setblocking(False)
    while sent < left:
        try:
            sent += sender.send(b"x" * 60000)
        except OSError:
            break
    return sent


def tcp(megabytes: int) -> int:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    total = 0
    for _ in range(2000):
        sender = socket.socket()
        sender.settimeout(2)
        for one in (sender, listener):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        try:
            sender.connect(listener.getsockname())
            KEPT.extend((sender, listener.accept()[0]))
        except OSError:
            break
        took = fill(sender, (megabytes << 20) - total)
        total += took
        if total >= megabytes << 20 or took < 1000:
            break
    return total >> 20


def udp(megabytes: int) -> int:
    total = 0
    for _ in range(2000):
        receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        KEPT.extend((sender, receiver))
        sender.setblocking(False)
        for _ in range(200):
            try:
                sender.send(b"x" * 60000)
            except OSError:
                break
        receiver.setblocking(False)
        queued = struct.unpack("9I", receiver.getsockopt(socket.SOL_SOCKET, 55, 36))[0]
        total += queued
        if total >= megabytes << 20 or not queued:
            break
    return total >> 20


def many(count: int, family: int, kind: int) -> int:
    """As many sockets as there may be, with nothing in them yet."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for number in range(count):
        try:
            KEPT.append(socket.socket(family, kind))
        except OSError:
            return number
    return count


def files(count: int) -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for number in range(count):
        try:
            os.dup(0) if number % 2 else os.open("/dev/null", os.O_RDONLY)
        except OSError:
            return number
    return count


def disk_files(count: int) -> int:
    """Each is another file on the disk, a thousand of them for each process."""
    os.makedirs("/root/many", exist_ok=True)
    hears, told = os.pipe()
    for begin in range(0, count, 1000):
        if os.fork():
            continue
        KEPT.extend(os.open(f"/root/many/{n}", os.O_RDWR | os.O_CREAT) for n in range(begin, begin + 1000))
        os.write(told, b"x")
        signal.pause()
    for _ in range(0, count, 1000):
        os.read(hears, 1)
    return count


def filters(count: int) -> int:
    """Of system calls, each as long as may be, on top of what it has."""
    libc = ctypes.CDLL(None)
    code = struct.pack("HBBI", 0x15, 0, 0, 7) * 4095 + struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", 4096, ctypes.addressof(kept))
    for number in range(count):
        if libc.prctl(22, 2, program, 0, 0):
            return number
    return count


acts = {
    "filters": filters,
    "locks": locks,
    "ofd": lambda count: locks(count, F_OFD_SETLK),
    "anonymous": anonymous,
    "anonymous_ofd": lambda count: anonymous(count, F_OFD_SETLK),
    "tcp": tcp,
    "udp": udp,
    "files": files,
    "disk_files": disk_files,
    "netlink": lambda count: many(count, socket.AF_NETLINK, socket.SOCK_RAW),
    "corked": lambda count: many(count, socket.AF_INET, socket.SOCK_DGRAM),
    "corked6": lambda count: many(count, socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC),
}
print("reached", acts[sys.argv[1]](int(sys.argv[2])), flush=True)
os.read(0, 1)

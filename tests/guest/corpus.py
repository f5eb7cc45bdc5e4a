"""What the fuzzers of guest/fuzz start from: sessions as servers have them, orders as launchers get them."""

from __future__ import annotations

import struct
from pathlib import Path

from sandboxer.backends.guest import Command, TerminalSize
from sandboxer.backends.supervisor.client import run_request
from sandboxer.backends.supervisor.codec import HELLO, Flag, Frame, Tag, field, frame, text, u32, u64

HOSTS = 4
# The acts of guest/fuzz/session.c, by their number.
DIAL, HANG_UP, DRAIN, READ, END, PRINT, STARTED, CLOSE_STDIN, HALF_CLOSE = range(9)


def act(what: int, whom: int) -> bytes:
    return bytes([130 + what, whom])


def send(host: int, data: bytes) -> bytes:
    out = b""
    for at in range(0, len(data), 1024):
        piece = data[at : at + 1024]
        many, few = divmod(len(piece) - 1, 8)
        out += bytes([many, few * HOSTS + host]) + piece
    return out


def _run(process_id: str, *, forget: bool = False, terminal: TerminalSize | None = None) -> bytes:
    command = Command(argv=["prog", "word"], env={"A": "b"}, has_stdin=True, tag="t", terminal=terminal)
    return run_request(command, process_id, Flag.FORGET if forget else Flag(0))


def _input(process_id: str, *frames: bytes, offset: int | None = None) -> bytes:
    at = b"" if offset is None else u64(Tag.OFFSET, offset)
    attach = frame(Frame.ATTACH, text(Tag.ID, process_id) + u32(Tag.FLAGS, Flag.INPUT) + at)
    return HELLO + attach + b"".join(frames)


def sessions() -> dict[str, bytes]:
    stdin, end = frame(Frame.STDIN, bytes(9000)), frame(Frame.STDIN_EOF)
    life = send(0, HELLO + _run("p") + stdin + end) + act(STARTED, 0) + act(PRINT, 64)
    two = life + act(DIAL, 1) + send(1, _input("p", stdin, end)) + act(DIAL, 2)
    two += send(2, _input("p", stdin, offset=3))
    old = HELLO.replace(u32(Tag.VERSION, 2), u32(Tag.VERSION, 1))
    listing = text(Tag.PATH, "/mnt") + u32(Tag.DEPTH, 2) + u32(Tag.LIMIT, 5) + field(Tag.AFTER, b"/mnt/a")
    plain = [
        frame(Frame.PING),
        frame(Frame.LIST),
        frame(Frame.SIGNAL, text(Tag.ID, "p") + u32(Tag.SIGNAL, 15)),
        frame(Frame.FORGET, text(Tag.ID, "p")),
        frame(Frame.LISTDIR, listing),
    ]
    told = [
        frame(Frame.DESCRIBE, text(Tag.PATH, name) + field(Tag.CONTENT, b"{}\n" * 40))
        for name in ("sandbox.json", "README", "sandbox.json", "api.sock", "../x", ".new")
    ]
    return {
        "described": send(0, b"".join(told)) + act(DRAIN, 0),
        "life": life + act(READ, 0) + act(DRAIN, 0) + act(END, 0) + act(DRAIN, 0),
        "writers": two + act(READ, 0) * 3 + act(HANG_UP, 1) + act(READ, 0) * 3 + act(END, 0) + act(DRAIN, 2),
        "closed": two + act(CLOSE_STDIN, 0) + act(DRAIN, 1) + act(HANG_UP, 0) + act(END, 0),
        "old": send(0, old + _run("q") + stdin) + act(STARTED, 0) + act(HALF_CLOSE, 0) + act(READ, 0) * 4,
        "failed": send(0, HELLO + _run("r") + stdin) + act(STARTED, 128) + act(DRAIN, 0),
        "kept": send(0, HELLO + _run("s", forget=True)) + act(STARTED, 0) + act(PRINT, 0) + act(END, 0),
        "terminal": send(0, HELLO + _run("t", terminal=TerminalSize(cols=80, rows=24)) + end)
        + act(STARTED, 0),
        "plain": send(0, HELLO + b"".join(plain)) + act(DRAIN, 0),
    }


def orders() -> dict[str, bytes]:
    words = ["tag=t1", "image=/i", "disk=/d", "socket=/s", "cgroup=/c", "hostname=h", "boot_id=b"]
    words += ["base=100000", "count=65536", "capabilities=0x1ff", "ptys=64", "join=/a", "mask=/proc/x"]
    words += ["way_out=3128", "tools=/t", "figure.memory_limit=/c/memory.max", "view=meminfo"]
    acts = ["cgroup.folder=/c", "cgroup.write=/c/x", "cgroup.value=1", "disk.subvolume=/d", "disk.value=0"]
    volumes = ["volume=/v", "volume.path=/mnt", "volume.read_only="]
    return {
        "whole": "".join(f"{word}\0" for word in words + acts + volumes).encode(),
        "short": "".join(f"{word}\0" for word in words[:4]).encode(),
    }


def shown() -> dict[str, bytes]:
    """What a kernel asks of a file system of limits, and the figures that it is made of, v1 and v2."""

    def piece(what: int, data: bytes) -> bytes:
        return struct.pack("<BH", what, len(data)) + data

    def ask(opcode: int, node: int, rest: bytes = b"") -> bytes:
        return piece(200, struct.pack("<IIQQIIIHH", 40 + len(rest), opcode, 7, node, 0, 0, 1, 0, 0) + rest)

    cpuinfo = b"".join(b"processor\t: %d\nmodel name\t: x\n\n" % number for number in range(4))
    stat = b"anon 4096\nfile 8192\ninactive_file 4096\nslab_reclaimable 10\nrss 1\ncache 2\n"
    v2 = [
        b"",
        cpuinfo,
        b"268435456\n",
        b"1048576\n",
        stat,
        b"150000 100000\n",
        b"user_usec 5\nsystem_usec 6\n",
    ]
    v1 = [*v2[:5], b"50000\n", v2[6]]
    read = [
        ask(15, node, struct.pack("<QQIIQII", 0, at, 4096, 0, 0, 0, 0))
        for node in range(2, 7)
        for at in (0, 9)
    ]
    asked = [
        ask(26, 0, struct.pack("<IIII", 7, 45, 131072, 0)), ask(1, 1, b"meminfo\0"), ask(1, 1, b"none\0"),
        ask(3, 2, bytes(16)), ask(14, 2, bytes(8)), ask(17, 1), ask(18, 2, bytes(24)), ask(22, 2), *read,
    ]  # fmt: skip
    return {
        f"v{version}": b"".join(piece(number, text) for number, text in enumerate(figures)) + b"".join(asked)
        for version, figures in ((1, v1), (2, v2))
    }


def questions() -> dict[str, bytes]:
    """What stub resolvers ask: an address, its IPv6 kin with options, and one name that is none."""
    head = bytes.fromhex("0007010000010000000000")
    name = b"\x03www\x07Example\x03com\0"
    options = bytes.fromhex("00002904d0000000000000")
    return {
        "a": head + b"\0" + name + b"\0\x01\0\x01",
        "aaaa": head + b"\x01" + name + b"\0\x1c\0\x01" + options,
        "alone": head + b"\0\x05alone\0\0\x01\0\x01",
        "pointer": head + b"\0\xc0\x0c\0\x01\0\x01",
        "long": head + b"\0" + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\x01\0\x01",
    }


def answers() -> dict[str, bytes]:
    """What a platform says to the client inside: the first byte is how it comes."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    chunks = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    return {
        "whole": b"\xfe" + whole,
        "bytewise": b"\x00" + chunks,
        "head": b"\xff" + whole,
        "interim": b"\x10HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + chunks,
        "open": b"\x20HTTP/1.1 403 Forbidden\nA: b\n\nuntil the end",
        "empty": b"\x20HTTP/1.1 204 No Content\r\n\r\n",
        "huge": b"\x20HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nx",
        "odd": b"\x20HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"-1\r\n0x5;a=b\r\nhello\r\nffffffffffffffff\r\n",
    }


def write(corpus: dict[str, bytes], into: Path) -> list[Path]:
    into.mkdir(parents=True, exist_ok=True)
    for name, data in corpus.items():
        (into / name).write_bytes(data)
    return sorted(into.iterdir())

"""Artifacts are files that a run leaves in its working folder. They are returned within limits, and what is
left out is named.

A plain name returns that file. A pattern (`*`, `?`, `[…]`, `**`) returns what matches and was created or
changed by the run itself, so that `*` does not send the caller's own files back.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from sandboxer.backends.guest import FileInfo, FileKind, Guest
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import GuestRefused
from sandboxer.kernel.values import value_class
from sandboxer.work.lines import WORKSPACE

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_TOTAL_BYTES = 8 * 1024 * 1024
MAX_ARTIFACTS = 64
# At most this many entries are looked at, and this many omitted ones named: a program may make a million
# files.
MAX_SEEN = 10_000
MAX_LEFT_OUT = 100
MAX_DEPTH = 16
# Wildcards in one pattern: each may be tried at every position of every name.
MAX_MARKS = 16

Seen = Mapping[str, tuple[int, float]]


@value_class
class Artifact:
    name: str
    mode: int
    data: bytes


@value_class
class LeftOut:
    name: str
    why: str
    size: int | None = None


@value_class
class Collected:
    artifacts: Sequence[Artifact]
    left_out: Sequence[LeftOut]


NOTHING = Collected(artifacts=(), left_out=())


def is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")


def has_too_many_marks(name: str) -> bool:
    return sum(name.count(mark) for mark in "*[") > MAX_MARKS


async def look(guest: Guest, wanted: Sequence[str]) -> Seen:
    """Records the working folder before the run if a pattern asks for what the run changes."""
    if not any(is_pattern(name) for name in wanted):
        return {}
    files, _ = await _files(guest)
    return {name: _mark(info) for name, info in files.items()}


async def collect(guest: Guest, wanted: Sequence[str], before: Seen, lease: Lease) -> Collected:
    """Returns the artifacts. Never raises for what the program did to its files; raises if the sandbox is
    lost.
    """
    if not wanted:
        return NOTHING
    chosen, left_out = await _chosen(guest, wanted, before)
    artifacts: list[Artifact] = []
    room = MAX_TOTAL_BYTES
    for name, info in chosen.items():
        why = _refusal(info, room, len(artifacts))
        data = None
        if why is None:
            data = await _read(guest, name, min(MAX_FILE_BYTES, room), lease)
            why = "it could not be read" if data is None else None
        if data is None:
            left_out.append(LeftOut(name=name, why=why or "", size=info.size))
            continue
        room -= len(data)
        artifacts.append(Artifact(name=name, mode=info.mode & 0o7777, data=data))
    return Collected(artifacts=artifacts, left_out=_bounded(left_out))


async def _chosen(
    guest: Guest, wanted: Sequence[str], before: Seen
) -> tuple[dict[str, FileInfo], list[LeftOut]]:
    chosen: dict[str, FileInfo] = {}
    left_out: list[LeftOut] = []
    patterns = [name for name in wanted if is_pattern(name)]
    for name in wanted:
        if name in patterns:
            continue
        try:
            chosen[name] = await guest.files.stat(posixpath.join(WORKSPACE, name))
        except GuestRefused:
            left_out.append(LeftOut(name=name, why="there is no such file"))
    if patterns:
        files, is_cut = await _files(guest)
        if is_cut:
            left_out.append(LeftOut(name="**", why=f"more than {MAX_SEEN} entries; only so many were seen"))
        made = [name for name, info in files.items() if before.get(name) != _mark(info)]
        # In a thread: matching thousands of names against dozens of patterns takes a while, and others are
        # waiting.
        for name in await asyncio.to_thread(_matching, sorted(made), patterns):
            chosen.setdefault(name, files[name])
    return chosen, left_out


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(matches(pattern, name) for pattern in patterns)]


async def _files(guest: Guest) -> tuple[dict[str, FileInfo], bool]:
    """Returns the regular files below the working folder by name, and whether there were too many
    to look at.
    """
    found: dict[str, FileInfo] = {}
    seen = 0
    try:
        async for info in guest.files.list(WORKSPACE, depth=MAX_DEPTH):
            seen += 1
            if seen > MAX_SEEN:
                return found, True
            if info.kind is FileKind.FILE:
                found[posixpath.relpath(info.path, WORKSPACE)] = info
    except GuestRefused:
        # The program removed its folder, or changes it while it is read.
        return found, False
    return found, False


def _refusal(info: FileInfo, room: int, count: int) -> str | None:
    if info.kind is not FileKind.FILE:
        return "it is not a regular file"
    if count >= MAX_ARTIFACTS:
        return f"more than {MAX_ARTIFACTS} files"
    if info.size > MAX_FILE_BYTES:
        return f"it is larger than {MAX_FILE_BYTES} bytes"
    if info.size > room:
        return f"all together are more than {MAX_TOTAL_BYTES} bytes"
    return None


async def _read(guest: Guest, name: str, limit: int, lease: Lease) -> bytes | None:
    """Returns at most `limit` bytes, whatever size the file was said to have."""
    data = bytearray()
    try:
        async for chunk in guest.files.read(posixpath.join(WORKSPACE, name), length=limit):
            await lease.grow(len(chunk))
            data += chunk
            if len(data) >= limit:
                break
    except GuestRefused:
        return None
    return bytes(data[:limit])


def _mark(info: FileInfo) -> tuple[int, float]:
    return info.size, info.modified_at


def _bounded(left_out: list[LeftOut]) -> list[LeftOut]:
    if len(left_out) <= MAX_LEFT_OUT:
        return left_out
    more = len(left_out) - MAX_LEFT_OUT
    return [*left_out[:MAX_LEFT_OUT], LeftOut(name="…", why=f"and {more} more")]


def matches(pattern: str, name: str) -> bool:
    """Matches folder by folder: `*` stays within one, `**` stands for any number of them."""
    parts = name.split("/")
    reached = {0}
    for piece in pattern.split("/"):
        if piece == "**":
            reached = set(range(min(reached, default=len(parts) + 1), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], piece)}
    return len(parts) in reached

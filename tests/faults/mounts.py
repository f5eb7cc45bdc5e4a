"""Small file systems that can be filled, made read-only and taken away."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_tmpfs(path: Path, *, size_mb: int) -> Iterator[Path]:
    path.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", "tmpfs", str(path))
    try:
        yield path
    finally:
        run("umount", "-l", str(path))


@contextmanager
def small_ext4(path: Path, *, size_mb: int) -> Iterator[Path]:
    path.mkdir(parents=True)
    image = path.with_name(path.name + ".ext4")
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    run("mkfs.ext4", "-q", "-F", str(image))
    run("mount", "-o", "loop", str(image), str(path))
    try:
        yield path
    finally:
        run("umount", "-l", str(path))


def make_read_only(path: Path) -> None:
    """As the kernel does to a file system whose disk has failed, whoever has files of it open."""
    run("mount", "-o", "remount,abort", str(path))
    # The abort takes effect with the next thing that is to be written.
    subprocess.run(["touch", str(path / "x")], capture_output=True, check=False)
    subprocess.run(["sync", "-f", str(path)], capture_output=True, check=False)


def fill(folder: Path) -> Path:
    """To the last byte; returns the file to remove."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def device_of(mounted: Path) -> str:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split(" ")
        if words[4] == str(mounted):
            return words[words.index("-") + 2]
    raise AssertionError(f"{mounted} is not mounted")


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)

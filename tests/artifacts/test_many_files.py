"""Very many small files: an archive of them is imported in little memory, a sandbox of them copied at once.

SANDBOXER_TEST_FILES sets how many; the slow tests have a million.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import statistics
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.artifacts.engines import BUSYBOX
from tests.support.archives import make_tree
from tests.support.http.real import GUEST, IMAGES, why_not
from tests.support.http.served import Served, serving

MANY = int(os.environ.get("SANDBOXER_TEST_FILES", "1000000"))
FEW = 3000
FOLDERS = 1000
# In as little time as can be: a thousand files to a folder, a line in each.
MAKER = """
import os, sys
for n in range(int(sys.argv[1])):
    folder = f"/data/{n % 1000}"
    if n < 1000:
        os.makedirs(folder)
    fd = os.open(f"{folder}/{n}", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"file %d" % n)
    os.close(fd)
os.sync()
"""


@asynccontextmanager
async def served_on(tmp_path: Path, images: Path, pool_mb: int) -> AsyncIterator[Served]:
    state = tmp_path / "state"
    settings = Settings(
        state_dir=state,
        host="127.0.0.1",
        port=0,
        images_dir=images,
        guest_dir=GUEST,
        pool_size_mb=pool_mb,
        charging=False,
    )
    try:
        async with serving(settings, None) as running:
            yield running
            for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


def layer(count: int) -> Iterator[bytes]:
    def entry(name: str, content: bytes = b"", **facts: object) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o755
        for key, value in facts.items():
            setattr(info, key, value)
        return info.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * (-len(content) % 512)

    yield entry("bin/busybox", Path(BUSYBOX).read_bytes())
    yield entry("bin/sh", type=tarfile.SYMTYPE, linkname="busybox")
    for number in range(count):
        yield entry(f"data/{number % FOLDERS}/{number}", b"file %d" % number)
    yield b"\0" * 1024


def make_archive(count: int, to: Path) -> None:
    """As `docker save` writes it, without ever holding it."""
    packed, digest = to.with_suffix(".layer"), hashlib.sha256()
    with gzip.open(packed, "wb", compresslevel=1) as file:
        for piece in layer(count):
            digest.update(piece)
            file.write(piece)
    about = {"rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]}, "config": {}}
    documents = {"manifest.json": [{"Config": "c.json", "RepoTags": [], "Layers": ["l"]}], "c.json": about}
    with tarfile.open(to, "w") as tar:
        for name, document in documents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content := json.dumps(document).encode())
            tar.addfile(info, io.BytesIO(content))
        tar.add(packed, "l")
    packed.unlink()


def resident_mb() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1024


async def good(served: Served, method: str, path: str, body: object = None, **words: Any) -> Any:
    answer = await served.client.send(method, path, **({"body": body} if body is not None else {}), **words)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def count_inside(served: Served, sandbox: str) -> int:
    argv = ["/bin/sh", "-c", "find /data -type f | wc -l"]
    said = await good(served, "POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": argv, "timeout_s": 600})
    return int(said["stdout"])


async def import_and_start(served: Served, tmp_path: Path, count: int) -> None:
    """With what it took in words: those of a million stand in the guide."""
    served.client.http.timeout = 5400.0
    archive = tmp_path / "many.tar"
    await asyncio.to_thread(make_archive, count, archive)
    content = archive.read_bytes()
    archive.unlink()
    before, most, began = resident_mb(), 0, time.monotonic()
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(good(served, "POST", "/v1/images/import?name=many", content=content))
        while not sending.done():
            most = max(most, resident_mb())
            await asyncio.wait([sending], timeout=0.2)
    image = sending.result()
    took = time.monotonic() - began
    print(f"{count} files imported in {took:.1f} s with {most - before} MB more memory")
    assert image["files"] == count + 1
    # What is sent may be held once by the client, which is the same process here.
    assert most - before < 150 + (len(content) >> 20)
    wanted = {"resources": {"disk_mb": image["size_bytes"] // 2**20 + 64}}
    spawned = await good(served, "POST", f"/v1/images/{image['id']}/spawn", wanted)
    assert await count_inside(served, spawned["sandboxes"][0]["id"]) == count
    await good(served, "POST", f"/v1/images/{image['id']}/verify")


def skip_without() -> None:
    if why := why_not() or ("" if os.path.exists(BUSYBOX) else "busybox-static is not installed"):
        pytest.skip(why)


async def test_an_archive_of_thousands_of_small_files_becomes_an_image(tmp_path: Path) -> None:
    skip_without()
    make_tree(tmp_path / "images/tiny/rootfs")
    async with served_on(tmp_path, tmp_path / "images", 800) as served:
        await import_and_start(served, tmp_path, FEW)


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_an_archive_of_a_million_small_files_becomes_an_image(tmp_path: Path) -> None:
    skip_without()
    make_tree(tmp_path / "images/tiny/rootfs")
    async with served_on(tmp_path, tmp_path / "images", 9000 * MANY // 1_000_000 + 1000) as served:
        await import_and_start(served, tmp_path, MANY)


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_a_sandbox_with_a_million_small_files_is_copied_as_quickly_as_an_empty_one(
    tmp_path: Path,
) -> None:
    """What was written is on the disk by then, as the figures of snapshots have it. Both in turns."""
    skip_without()
    async with served_on(tmp_path, IMAGES, 7000 * MANY // 1_000_000 + 1000) as served:
        served.client.http.timeout = 5400.0
        boxes = {count: await box_with(served, count) for count in (10, MANY)}
        await asyncio.to_thread(os.sync)
        took: dict[int, dict[str, list[float]]] = {count: {} for count in boxes}
        for number in range(7):
            for count, box in boxes.items():
                await copy(served, box, took[count], expect=count if number == 6 else None)
        medians = {
            n: {a: round(statistics.median(t), 1) for a, t in acts.items()} for n, acts in took.items()
        }
        print(json.dumps(medians))
        for act, few_ms in medians[10].items():
            assert medians[MANY][act] < 3 * few_ms + 100, medians


async def box_with(served: Served, count: int) -> str:
    wanted = {"resources": {"disk_mb": 1500 * count // 1_000_000 + 100, "memory_mb": 512}}
    box = str((await good(served, "POST", "/v1/sandboxes", wanted))["id"])
    command = {"argv": ["python3", "-c", MAKER, str(count)], "timeout_s": 3600}
    said = await good(served, "POST", f"/v1/sandboxes/{box}/exec", command)
    assert said["exit_code"] == 0, said
    return box


async def copy(served: Served, box: str, took: dict[str, list[float]], *, expect: int | None) -> None:
    """One round, each act timed in milliseconds."""

    async def timed(act: str, path: str, body: object = None) -> Any:
        began = time.monotonic()
        answer = await good(served, "POST", path, body)
        took.setdefault(act, []).append((time.monotonic() - began) * 1000)
        return answer

    kept = (await timed("snapshot", f"/v1/sandboxes/{box}/snapshots", {}))["id"]
    clone = (await timed("clone", f"/v1/snapshots/{kept}/clone", {}))["sandboxes"][0]["id"]
    await timed("restore", f"/v1/snapshots/{kept}/restore")
    if expect is not None:
        assert await count_inside(served, clone) == await count_inside(served, box) == expect
    await good(served, "DELETE", f"/v1/sandboxes/{clone}")
    await good(served, "DELETE", f"/v1/snapshots/{kept}")

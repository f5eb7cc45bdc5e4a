"""Files over HTTP: content, ranges, lists, strange names."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tests.support.http.flows import flow
from tests.support.http.served import Served
from tests.support.http.signed import target


def content(path: str, file: object, **more: object) -> str:
    return target(f"{path}/files/content", path=file, **more)


@flow("writeFile", "readFile", "headFile", "statFile", "deleteFile")
async def test_a_file_is_written_read_looked_at_and_removed(served: Served) -> None:
    path = await served.sandbox()
    where = content(path, "/workspace/new/folder/f.bin")
    data = bytes(range(256)) * 4096
    written = await served.client.put(where, data)
    assert written.status_code == 200, written.text
    assert written.json()["size"] == len(data)
    read = await served.client.get(where)
    assert read.content == data
    assert read.headers["content-type"] == "application/octet-stream"
    head = await served.client.send("HEAD", where)
    assert head.status_code == 200
    assert head.headers["content-length"] == str(len(data))
    info = await served.client.get(target(f"{path}/files/stat", path="/workspace/new/folder/f.bin"))
    assert info.json()["kind"] == "file"
    assert info.json()["name"] == "f.bin"
    assert (await served.client.delete(where)).status_code == 204
    gone = await served.client.get(where)
    assert gone.status_code == 404
    assert gone.json()["code"] == "path_not_found"


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=5-", 206, b"56789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=-100", 206, b"0123456789"),
        ("bytes=3-2", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=-", 200, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
    ],
)
async def test_ranges(served: Served, header: str, status: int, expected: bytes | None) -> None:
    path = await served.sandbox()
    where = content(path, "/workspace/f")
    await served.client.put(where, b"0123456789")
    answer = await served.client.get(where, headers={"range": header})
    assert answer.status_code == status
    if expected is None:
        assert answer.headers["content-range"] == "bytes */10"
        assert answer.json()["code"] == "range_not_satisfiable"
        return
    assert answer.content == expected
    if status == 206:
        start = 10 - len(expected) if header.startswith("bytes=-") else int(header[6:].split("-")[0])
        assert answer.headers["content-range"] == f"bytes {start}-{start + len(expected) - 1}/10"


async def test_a_range_of_a_file_that_changed_is_the_whole_file(served: Served) -> None:
    path = await served.sandbox()
    where = content(path, "/workspace/f")
    await served.client.put(where, b"old content")
    etag = (await served.client.get(where)).headers["etag"]
    same = await served.client.get(where, headers={"range": "bytes=0-2", "if-range": etag})
    assert same.status_code == 206
    await served.client.put(where, b"new content!")
    changed = await served.client.get(where, headers={"range": "bytes=0-2", "if-range": etag})
    assert changed.status_code == 200
    assert changed.content == b"new content!"


async def test_an_empty_file_is_a_file(served: Served) -> None:
    path = await served.sandbox()
    assert (await served.client.put(content(path, "/workspace/e"), b"")).json()["size"] == 0
    answer = await served.client.get(content(path, "/workspace/e"))
    assert answer.status_code == 200
    assert answer.headers["content-length"] == "0"


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline",
        b"\xff\xfe broken",
        "ünï côdé".encode(),
        b"a b+c%2F?&#",
        b"quote'\"",
        b" ",
        b"\x01\x7f",
        b"x" * 255,
    ],
)
async def test_any_name_a_kernel_allows_travels_unharmed(served: Served, name: bytes) -> None:
    path = await served.sandbox()
    file = b"/workspace/" + name
    assert (await served.client.put(content(path, file), b"here")).status_code == 200
    assert (await served.client.get(content(path, file))).content == b"here"
    (listed,) = (await served.client.get(target(f"{path}/files", path="/workspace"))).json()["files"]
    if listed["raw_path"] is None:
        assert listed["path"].encode() == file
    else:
        assert "\ufffd" in listed["path"]
        back = await served.client.send(
            "POST",
            f"{path}/files/move",
            body={"source": listed["raw_path"], "target": "/workspace/plain", "path_encoding": "percent"},
        )
        assert back.status_code == 204, back.text
        assert (await served.client.get(content(path, "/workspace/plain"))).content == b"here"


@pytest.mark.parametrize(
    "bad", ["relative", "", "/with%00nul".replace("%00", "\x00"), "/" + "x" * 5000, "/" + "y" * 256]
)
async def test_a_path_no_kernel_takes_is_refused_with_its_name(served: Served, bad: str) -> None:
    path = await served.sandbox()
    for answer in (
        await served.client.get(content(path, bad)),
        await served.client.put(content(path, bad), b"x"),
        await served.client.get(target(f"{path}/files", path=bad)),
        await served.client.post(f"{path}/files/mkdir", {"path": bad}),
    ):
        assert answer.status_code == 422, answer.text
        assert answer.json()["field"] == "path"


async def test_a_path_given_twice_or_never_is_refused(served: Served) -> None:
    path = await served.sandbox()
    assert (await served.client.get(f"{path}/files/content?path=/a&path=/b")).status_code == 422
    assert (await served.client.get(f"{path}/files/content")).status_code == 422


@flow("listFiles")
async def test_ten_thousand_files_are_listed_in_pages_that_meet(served: Served) -> None:
    path = await served.sandbox()
    disk = served.backend.boxes[path.rsplit("/", 1)[1]].disk
    for number in range(10_000):
        disk.write(f"/workspace/many/{number:05d}", b"", parents=True)
    found: list[str] = []
    query: dict[str, object] = {"path": "/workspace/many", "limit": 3000}
    while True:
        page = (await served.client.get(target(f"{path}/files", **query))).json()
        found += [file["name"] for file in page["files"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert found == [f"{number:05d}" for number in range(10_000)]
    bad = await served.client.get(target(f"{path}/files", path="/workspace/many", cursor="bm9wZQ"))
    assert bad.status_code == 422


@flow("makeDirectory", "moveFile", "removeFile")
async def test_folders_are_made_moved_and_removed(served: Served) -> None:
    path = await served.sandbox()
    client = served.client
    assert (await client.post(f"{path}/files/mkdir", {"path": "/workspace/a/b"})).status_code == 204
    exists = await client.post(f"{path}/files/mkdir", {"path": "/workspace/a/b", "parents": False})
    assert exists.status_code == 409
    assert exists.json()["code"] == "path_exists"
    body = {"source": "/workspace/a", "target": "/workspace/c"}
    assert (await client.post(f"{path}/files/move", body)).status_code == 204
    full = await client.post(f"{path}/files/remove", {"path": "/workspace/c"})
    assert full.status_code == 409
    assert full.json()["code"] == "directory_not_empty"
    body = {"path": "/workspace/c", "recursive": True}
    assert (await client.post(f"{path}/files/remove", body)).status_code == 204
    assert (await client.post(f"{path}/files/remove", {"path": "//"})).status_code == 422


async def test_what_is_no_regular_file_is_not_read(served: Served) -> None:
    path = await served.sandbox()
    folder = await served.client.get(content(path, "/workspace"))
    assert folder.status_code == 422
    assert folder.json()["code"] == "is_a_directory"
    await served.client.post(f"{path}/exec", {"command": "mkfifo /workspace/pipe"})
    pipe = await served.client.get(content(path, "/workspace/pipe"))
    assert pipe.status_code == 422
    assert pipe.json()["code"] == "not_a_regular_file"
    over = await served.client.put(content(path, "/workspace"), b"x")
    assert over.status_code == 422


async def test_an_upload_that_breaks_off_leaves_the_old_file(served: Served) -> None:
    path = await served.sandbox()
    where = content(path, "/workspace/f")
    await served.client.put(where, b"old")
    host, port = served.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = served.owner.head("PUT", where, "0" * 64)
    lines = [f"PUT {where} HTTP/1.1", "host: x", "content-length: 1000000"]
    lines += [f"{name}: {value}" for name, value in head.items()]
    writer.write("\r\n".join([*lines, "", "half of it"]).encode())
    await writer.drain()
    writer.close()
    assert (await served.client.get(where)).content == b"old"


async def test_a_full_disk_is_said_so(served: Served) -> None:
    path = await served.sandbox(resources={"disk_mb": 16})
    answer = await served.client.put(content(path, "/workspace/f"), b"x" * (17 * 2**20))
    assert answer.status_code == 409
    assert answer.json()["code"] == "disk_full"


@flow("watchFiles")
async def test_a_watch_tells_changes_as_they_happen(served: Served) -> None:
    path = await served.sandbox()
    where = target(f"{path}/files/watch", path="/workspace")
    async with aclosing(served.client.events("GET", where)) as events:
        assert (await anext(events)).name == "ready"
        await served.client.put(content(path, b"/workspace/\xff"), b"x")
        event = await anext(events)
    assert event.name == "change"
    assert event.data["change"] in ("created", "modified", "moved")
    assert event.data["raw_path"] == "/workspace/%FF"
    missing = await served.client.get(target(f"{path}/files/watch", path="/none"))
    assert missing.status_code == 404

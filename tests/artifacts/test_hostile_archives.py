"""Archives that mean harm: each is refused or does nothing, and nothing outside the folder changes."""

from __future__ import annotations

import gzip
import io
import math
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from sandboxer.artifacts.images.oci.applying import Applying, is_packed, unpack_whole
from sandboxer.artifacts.images.oci.archive import layer_members, understand
from sandboxer.artifacts.images.oci.tar import MAX_NAMES_BYTES, Work, members
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel.errors import InvalidRequest, SandboxerError, TooLarge
from tests.support.archives import Entry, docker_archive, file, packed


def other(path: str, kind: bytes, target: str = "") -> Entry:
    info = tarfile.TarInfo(path)
    info.type, info.linkname, info.mode = kind, target, 0o755
    return info, b""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/word").write_text("untouched")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def unpack(root: Path, *layers: bytes, bounds: Bounds | None = None) -> Applying:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        applying = Applying(fd, bounds or Bounds())
        for layer in layers:
            applying.apply(members(io.BytesIO(layer)))
        applying.on_start()
        return applying
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([file("/etc/absolute")], id="absolute path"),
        pytest.param([file("a/../../outside/word", b"bad")], id="path upwards"),
        pytest.param([other("hard", tarfile.LNKTYPE, "../outside/word")], id="hard link upwards"),
        pytest.param([other("hard", tarfile.LNKTYPE, "/etc/passwd")], id="hard link absolute"),
        pytest.param(
            [other("in", tarfile.SYMTYPE, "../outside"), other("hard", tarfile.LNKTYPE, "in/word")],
            id="hard link through a link",
        ),
        pytest.param(
            [other("a", tarfile.SYMTYPE, "b"), other("b", tarfile.SYMTYPE, "a"), file("a/file")],
            id="loop of links",
        ),
        pytest.param([other("hard", tarfile.LNKTYPE, "hard2")], id="hard link to nothing"),
        pytest.param([file("x" * 300)], id="long name"),
        pytest.param([file("file"), file("file/below")], id="file as a folder"),
        pytest.param([file(".wh...")], id="hides its parent"),
    ],
)
def test_what_means_to_lead_out_is_refused(root: Path, entries: list[Entry]) -> None:
    with pytest.raises(InvalidRequest):
        unpack(root, packed(*entries))
    assert (root.parent / "outside/word").read_text() == "untouched"
    assert sorted(p.name for p in (root.parent / "outside").iterdir()) == ["word"]


def test_links_lead_on_inside_the_root_only(root: Path) -> None:
    outside = str(root.parent / "outside")
    layers = (
        packed(other("way", tarfile.SYMTYPE, outside), file("way/word", b"bad")),
        packed(other("up", tarfile.SYMTYPE, "../../../../../.."), file("up/etc/word", b"bad")),
    )
    for layer in layers[1:]:
        unpack(root, layer)
    assert (root / "etc/word").read_text() == "bad"
    with pytest.raises(InvalidRequest):
        unpack(root, layers[0])
    assert (root.parent / "outside/word").read_text() == "untouched"


def test_a_link_is_replaced_never_written_through(root: Path) -> None:
    word = str(root.parent / "outside/word")
    unpack(root, packed(other("link", tarfile.SYMTYPE, word), file("link", b"bad")))
    assert (root / "link").read_text() == "bad"
    assert not (root / "link").is_symlink()
    assert (root.parent / "outside/word").read_text() == "untouched"


def test_a_mark_does_not_remove_through_a_link(root: Path) -> None:
    outside = str(root.parent / "outside")
    unpack(root, packed(other("link", tarfile.SYMTYPE, outside)))
    with pytest.raises(InvalidRequest):
        unpack(root, packed(file("link/.wh.word", b"")))
    unpack(root, packed(file(".wh.link", b"")))
    assert not (root / "link").is_symlink()
    assert (root.parent / "outside/word").read_text() == "untouched"


def test_devices_and_fifos_are_not_made_and_places_to_mount_on_are_folders(root: Path) -> None:
    entries = [other(name, kind) for name, kind in (("null", tarfile.CHRTYPE), ("pipe", tarfile.FIFOTYPE))]
    done = unpack(root, packed(*entries, other("proc", tarfile.SYMTYPE, "/etc"), file("dev")))
    assert done.skipped == 2
    assert not (root / "null").exists()
    assert not (root / "pipe").exists()
    for name in ("proc", "dev", "sys", "tmp"):
        assert (root / name).is_dir()
        assert not (root / name).is_symlink()


def test_owners_that_no_sandbox_has_become_nobody(root: Path) -> None:
    unpack(root, packed(file("mine", uid=1000, gid=1000), file("theirs", uid=100_000_000, gid=7)))
    assert (root / "mine").stat().st_uid == 1000
    assert ((root / "theirs").stat().st_uid, (root / "theirs").stat().st_gid) == (65534, 7)


def test_layers_hide_replace_and_keep_what_is_their_own(root: Path) -> None:
    first = packed(file("a/one"), file("a/two"), file("b/old"), file("c/x"), file("d"))
    second = packed(
        file("a/.wh.one", b""),
        file("b/new"),
        file("b/.wh..wh..opq", b""),
        file(".wh.c", b""),
        other("d", tarfile.DIRTYPE),
        file("d/now"),
    )
    unpack(root, first, second)
    found = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    assert found == ["a/two", "b/new", "d/now"]


@pytest.mark.parametrize(
    ("bounds", "count"), [(Bounds(entries=50), 51), (Bounds(bytes=1000), 2), (Bounds(depth=3), 1)]
)
def test_more_than_the_bounds_is_refused(root: Path, bounds: Bounds, count: int) -> None:
    with pytest.raises(TooLarge):
        unpack(root, packed(*(file(f"a/b/c/{n}", b"x" * 600) for n in range(count))), bounds=bounds)


def bent(change: Callable[[bytearray], None]) -> bytes:
    content = bytearray(packed(file("some", b"x" * 600)))
    change(content)
    return bytes(content)


def with_checksum(content: bytearray) -> None:
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])


def sized(text: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[124:136] = text
        with_checksum(content)

    return change


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"not a tar at all" * 100, id="no tar"),
        pytest.param(packed(file("some", b"x" * 600))[:700], id="cut short"),
        pytest.param(bent(sized(b"77777777777\0")), id="says it is larger"),
        pytest.param(bent(sized(b"\x80" + b"\xff" * 11)), id="says it is huge"),
        pytest.param(bent(sized(b"\xff" * 12)), id="says it is negative"),
        pytest.param(bent(sized(b"12x45678901\0")), id="no number"),
        pytest.param(packed(file("s", b"", pax_headers={"GNU.sparse.major": "1"})), id="sparse"),
        pytest.param(packed(file("s", b"", pax_headers={"comment": "x" * (2 << 20)})), id="huge header"),
    ],
)
def test_a_damaged_tar_is_refused(root: Path, content: bytes) -> None:
    with pytest.raises(SandboxerError):
        unpack(root, content)


def read_through(archive: bytes, most_bytes: int = 1 << 30) -> int:
    held = io.BytesIO(archive)
    found = understand(held)
    return sum(1 for blob in found.layers for _ in layer_members(held, blob, most_bytes=most_bytes))


def in_pieces(pack: Callable[[bytes], bytes], layer: bytes) -> bytes:
    """As estargz and zstd:chunked write it: every few bytes packed for themselves."""
    return b"".join(pack(layer[at : at + 700]) for at in range(0, len(layer), 700))


# Something that says of itself that it is to be skipped.
NOTE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_packed_layers_are_read_in_one_piece_and_in_many(pack: Callable[[bytes], bytes]) -> None:
    layer = packed(*(file(f"some{n}", bytes([n]) * 5000) for n in range(50)))
    assert read_through(docker_archive(layer, raw=pack(layer))) == 50
    assert read_through(docker_archive(layer, raw=in_pieces(pack, layer))) == 50
    with pytest.raises(InvalidRequest, match=r"cut short|in the middle"):
        read_through(docker_archive(layer, raw=pack(layer)[:-1]))
    with pytest.raises(InvalidRequest, match="damaged"):
        read_through(docker_archive(layer, raw=pack(layer) + b"something else"))


def test_notes_beside_what_is_packed_with_zstd_are_passed_over() -> None:
    layer = packed(file("some"))
    assert read_through(docker_archive(layer, raw=NOTE + zstd.compress(layer) + NOTE)) == 1


def test_a_layer_that_wants_gigabytes_of_memory_to_be_unpacked_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    layer = packed(file("zeros", b"\0" * 5000))
    raw = packer.compress(layer) + packer.flush()
    with pytest.raises(InvalidRequest, match="128 MB"):
        read_through(docker_archive(layer, raw=raw))


def test_nobody_reads_empty_pieces_for_ever() -> None:
    layer = packed(file("some"))
    archive = io.BytesIO(docker_archive(layer, raw=zstd.compress(layer) + NOTE * 100_000))
    (blob,) = understand(archive).layers
    with pytest.raises(TooLarge, match="time"):
        list(layer_members(archive, blob, most_bytes=1 << 30, ends=time.monotonic()))


def test_a_layer_that_is_not_what_its_digest_says_is_refused() -> None:
    layer = packed(file("some"))
    assert read_through(docker_archive(layer)) == 1
    with pytest.raises(InvalidRequest, match="not what its config says"):
        read_through(docker_archive(layer, diff_id="0" * 64))


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_a_bomb_is_defused(pack: Callable[[bytes], bytes]) -> None:
    """A few KB that would be 40 MB: never more than some pieces of a MB are held."""
    layer = packed(file("zeros", b"\0" * (40 << 20)))
    archive = docker_archive(layer, raw=pack(layer))
    del layer
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            read_through(archive, most_bytes=20 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param({"manifest.json": b"[" * 100_000}, id="deep JSON"),
        pytest.param({"manifest.json": b"[]"}, id="no image"),
        pytest.param({"manifest.json": b'[{"Config": 1, "Layers": []}]'}, id="other form"),
        pytest.param({"index.json": b'{"manifests": [{"digest": "md5:1"}]}'}, id="other digest"),
        pytest.param(
            {"index.json": b'{"manifests": [{"digest": "sha256:%s"}]}' % (b"0" * 64)}, id="missing blob"
        ),
        pytest.param({"something": b"else"}, id="neither form"),
    ],
)
def test_documents_that_are_not_what_they_should_be_are_refused(documents: dict[str, bytes]) -> None:
    with pytest.raises(InvalidRequest):
        understand(io.BytesIO(packed(*(file(name, content) for name, content in documents.items()))))


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_an_archive_packed_as_a_whole_is_unpacked_within_the_same_bounds(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    archive = docker_archive(packed(file("word", b"hello" * 1000)))

    def plain_of(content: bytes, *, most_bytes: int = 1 << 30, ends: float = math.inf) -> bytes:
        plain = io.BytesIO()
        unpack_whole(io.BytesIO(content), plain, room=tmp_path, most_bytes=most_bytes, ends=ends)
        return plain.getvalue()

    assert not is_packed(io.BytesIO(archive))
    assert is_packed(io.BytesIO(pack(archive)))
    assert plain_of(pack(archive)) == archive
    half = len(archive) // 2
    assert plain_of(pack(archive[:half]) + pack(archive[half:])) == archive, "in pieces"
    for damaged in (pack(archive)[:-9], pack(archive)[:20] + b"\xff" * 40 + pack(archive)[60:]):
        with pytest.raises(InvalidRequest):
            plain_of(damaged)
    with pytest.raises(TooLarge):
        plain_of(pack(bytes(64 << 20)), most_bytes=1 << 20)
    with pytest.raises(TooLarge):
        plain_of(pack(b"") * 1000, ends=0.0)


def test_a_folder_is_cleared_once_however_many_marks_it_has(root: Path) -> None:
    """Each mark listed the whole folder: a few hundred kilobytes took a core for half an hour."""
    files, marks = 2_000, 2_000
    below = packed(*[file(f"d/{number}", b"") for number in range(files)])
    alias = [other(f"l{number}", tarfile.SYMTYPE, "d") for number in range(100)]
    again = [file("d/.wh..wh..opq", b"") for _ in range(marks)]
    by_links = [file(f"l{number}/.wh..wh..opq", b"") for number in range(100)]
    applied = unpack(root, below, packed(*alias, file("d/own"), *again, *by_links))
    assert os.listdir(root / "d") == ["own"]
    assert applied.work.steps < 3 * (files + marks + 200)


def test_names_and_empty_pieces_are_counted_as_work() -> None:
    steps, names = Work(Bounds(entries=10)), Work(Bounds())
    steps.step(80)
    with pytest.raises(TooLarge):
        steps.step()
    names.name(b"n" * MAX_NAMES_BYTES)
    with pytest.raises(TooLarge):
        names.name(b"n")

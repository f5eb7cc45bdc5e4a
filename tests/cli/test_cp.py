"""`cp`: files and folders there and back again, and nothing outside where they belong."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from sandboxer.edges.cli.cp import _unpack
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli
from tests.support.platforms import Up


def test_a_file_goes_in_and_comes_out_the_same(cli: Cli, sandbox: Sandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    (tmp_path / "a.bin").write_bytes(data)
    said = cli("cp", str(tmp_path / "a.bin"), f"{sandbox.id}:/dir/b.bin", "--json")
    assert said.json["bytes"] == len(data)
    assert cli("cp", f"{sandbox.id}:/dir/b.bin", str(tmp_path / "c.bin")).code == Exit.OK
    assert (tmp_path / "c.bin").read_bytes() == data


def test_a_sandbox_is_named_by_its_name_or_the_beginning_of_its_id(cli: Cli, up: Up, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    owner = Sandboxer(owner_file=up.owner_file, url=up.url)
    with owner as client, client.create(name="by name") as sandbox:
        for word in ("by name", sandbox.id[:-2], sandbox.id):
            assert cli("cp", str(tmp_path / "a"), f"{word}:/in/{len(word)}").code == Exit.OK
        assert [found.name for found in sandbox.files.list("/in")] == ["28", "30", "7"]


def test_a_local_path_with_a_colon_is_a_local_path(
    cli: Cli, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a:b", "C:"):
        Path(name).write_text(name)
        assert cli("cp", name, f"{sandbox.id}:/{name}").code == Exit.OK
        assert sandbox.files.read_text(f"/{name}") == name


def test_an_existing_folder_receives_the_file_below_it(cli: Cli, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    sandbox.files.mkdir("/there")
    assert cli("cp", str(tmp_path / "x"), f"{sandbox.id}:/there").code == Exit.OK
    assert cli("cp", str(tmp_path / "x"), f"{sandbox.id}:/new/").code == Exit.OK
    assert sandbox.files.read("/there/x") == sandbox.files.read("/new/x") == b"1"
    (tmp_path / "back").mkdir()
    assert cli("cp", f"{sandbox.id}:/there/x", str(tmp_path / "back")).code == Exit.OK
    assert (tmp_path / "back" / "x").read_text() == "1"


def test_a_folder_goes_in_and_comes_out_the_same(
    real_cli: Cli, real_sandbox: Sandbox, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "er" / "file").write_bytes(b"\x00\x01")
    (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("run.sh")
    assert real_cli("cp", str(tree), f"{real_sandbox.id}:/workspace/tree").code == Exit.OK
    assert real_sandbox.exec("/workspace/tree/run.sh").stdout == "ran\n"
    assert real_cli("cp", f"{real_sandbox.id}:/workspace/tree", str(tmp_path / "back")).code == Exit.OK
    assert (tmp_path / "back" / "deep" / "er" / "file").read_bytes() == b"\x00\x01"
    assert (tmp_path / "back" / "link").readlink() == Path("run.sh")
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o111


def test_links_that_lead_out_are_left_out_and_named_and_the_rest_is_copied(
    real_cli: Cli, real_sandbox: Sandbox, tmp_path: Path
) -> None:
    made = "mkdir -p tree/z && ln -s /etc/hostname tree/a && ln -s ../../up tree/z/b && echo 1 > tree/z/file"
    assert real_sandbox.exec(made, cwd="/workspace").exit_code == 0
    copied = real_cli("cp", f"{real_sandbox.id}:/workspace/tree", str(tmp_path / "back"))
    assert copied.code == Exit.OK, copied.err
    assert (tmp_path / "back" / "z" / "file").read_text() == "1\n"
    assert sorted(os.listdir(tmp_path / "back")) == ["z"]
    assert "left out" in copied.err
    assert "a -> /etc/hostname" in copied.err
    again = real_cli("cp", "--json", f"{real_sandbox.id}:/workspace/tree", str(tmp_path / "again"))
    assert sorted(again.json["left_out"]) == ["a -> /etc/hostname", "z/b -> ../../up"]


def test_wrong_sides_are_explained(cli: Cli, sandbox: Sandbox, tmp_path: Path) -> None:
    assert "Exactly one" in cli("cp", "a", "b").err
    assert "absolute" in cli("cp", "a", f"{sandbox.id}:rel").err
    assert "does not exist" in cli("cp", str(tmp_path / "none"), f"{sandbox.id}:/x").err
    assert cli("cp", f"{sandbox.id}:/none", str(tmp_path)).code == Exit.REFUSED


@pytest.mark.parametrize("name", ["../escape", "/etc/escape"])
def test_a_hostile_tar_cannot_leave_the_target(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    target = tmp_path / "target"
    with contextlib.suppress(CommandFailed):
        _unpack([packed.getvalue()], target, lambda count: None)
    assert not (tmp_path / "escape").exists()
    assert not Path("/etc/escape").exists()


def test_a_chain_of_links_too_long_to_resolve_leads_nowhere(tmp_path: Path) -> None:
    packed = io.BytesIO()
    name, steps, deep = "d" * 247, "abcdefghijklmnop", ""
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for step in steps:
            tar.addfile(_member(f"{deep}{name}", tarfile.DIRTYPE))
            tar.addfile(_member(f"{deep}{step}", tarfile.SYMTYPE, name))
            deep += f"{name}/"
        long = "/".join(steps) + "/" + "l" * 254
        tar.addfile(_member(long, tarfile.SYMTYPE, "../" * len(steps)))
        tar.addfile(_member("out", tarfile.SYMTYPE, long + "/.."))
        tar.addfile(_member("out/escape"), io.BytesIO())
    with contextlib.suppress(CommandFailed):
        _unpack([packed.getvalue()], tmp_path / "target", lambda count: None)
    assert os.listdir(tmp_path) == ["target"]


def test_links_left_by_one_copy_are_not_followed_by_the_next(tmp_path: Path) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=first, mode="w") as tar:
        # By its words within the target, in truth its parent.
        tar.addfile(_member("here", tarfile.SYMTYPE, "."))
        tar.addfile(_member("out", tarfile.SYMTYPE, "here/.."))
        tar.addfile(_member("file", tarfile.SYMTYPE, "here/../escape"))
    with tarfile.open(fileobj=second, mode="w") as tar:
        tar.addfile(_member("file"), io.BytesIO())
        tar.addfile(_member("out/escape"), io.BytesIO())
    _unpack([first.getvalue()], tmp_path / "target", lambda count: None)
    with pytest.raises(CommandFailed, match="Not all could be written"):
        _unpack([second.getvalue()], tmp_path / "target", lambda count: None)
    assert os.listdir(tmp_path) == ["target"]
    assert not (tmp_path / "target" / "file").is_symlink()


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_only_files_folders_and_links_come_out(tmp_path: Path, kind: bytes) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(_member("odd", kind))
    with pytest.raises(CommandFailed):
        _unpack([packed.getvalue()], tmp_path / "target", lambda count: None)
    assert os.listdir(tmp_path / "target") == []


def test_hard_links_and_modes_come_out_without_setuid(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        program = _member("dir/program")
        program.mode, program.size = 0o6777, 2
        tar.addfile(program, io.BytesIO(b"ok"))
        tar.addfile(_member("same", tarfile.LNKTYPE, "dir/program"))
    _unpack([packed.getvalue()], tmp_path / "target", lambda count: None)
    assert (tmp_path / "target" / "same").read_bytes() == b"ok"
    assert (tmp_path / "target" / "same").stat().st_mode & 0o7777 == 0o755


def test_a_tar_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed):
        _unpack([b"x" * 700], tmp_path / "target", lambda count: None)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member

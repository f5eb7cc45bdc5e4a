"""`cp`: files and folders there and back again, and nothing outside where they belong."""

from __future__ import annotations

import contextlib
import io
import tarfile
from pathlib import Path

import pytest

from sandboxer.edges.cli.copying import _unpack
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.cli.conftest import Cli


def test_a_file_goes_in_and_comes_out_the_same(cli: Cli, sandbox: Sandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    (tmp_path / "a.bin").write_bytes(data)
    said = cli("cp", str(tmp_path / "a.bin"), f"{sandbox.id}:/dir/b.bin", "--json")
    assert said.json["bytes"] == len(data)
    assert cli("cp", f"{sandbox.id}:/dir/b.bin", str(tmp_path / "c.bin")).code == Exit.OK
    assert (tmp_path / "c.bin").read_bytes() == data


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

"""`backup` and `restore`: what was there is there again, and nothing damaged is let in."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from sandboxer.edges.cli.exits import Exit
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.cli import Cli
from tests.support.platforms import Up, scripted_platform


@pytest.fixture
def saved(cli: Cli, up: Up, tmp_path: Path) -> Path:
    file = tmp_path / "saved.tar.gz"
    said = cli("backup", str(file), "--state-dir", str(up.state_dir), "--json")
    assert said.code == Exit.OK, said.err
    assert {"sandboxer.db", "owner.json", "master.key"} <= set(said.json["files"])
    assert said.json["left_out"]
    return file


def test_a_restored_platform_knows_its_owner_keys_and_records(cli: Cli, up: Up, tmp_path: Path) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        key = client.keys.create("kept", "team-kept")
        with client.create(name="remembered") as sandbox:
            file = tmp_path / "saved.tar.gz"
            assert cli("backup", str(file), "--state-dir", str(up.state_dir)).code == Exit.OK
    fresh = tmp_path / "fresh"
    assert cli("restore", str(file), "--state-dir", str(fresh)).code == Exit.OK
    with scripted_platform(fresh) as again, Sandboxer(owner_file=again.owner_file, url=again.url) as client:
        assert key.public_key in [one.public_key for one in client.keys.list()]
        assert client.get(sandbox.id).info.name == "remembered"
        with Sandboxer(public_key=key.public_key, secret_key=key.secret_key, url=again.url) as other:
            assert list(other.list()) == []


def test_a_restore_names_the_profiles_that_this_host_has_not(cli: Cli, up: Up, tmp_path: Path) -> None:
    file, theirs, ours = tmp_path / "saved.tar.gz", tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
        (folder / "same.yaml").write_text("id: profile.same\n")
        (folder / "changed.yaml").write_text(f"id: profile.{folder.name}\n")
    (theirs / "special.yaml").write_text("id: profile.special\n")
    cli("backup", str(file), "--state-dir", str(up.state_dir), SANDBOXER_PROFILES_DIR=str(theirs))
    fresh = tmp_path / "fresh"
    said = cli("restore", str(file), "--state-dir", str(fresh), SANDBOXER_PROFILES_DIR=str(ours))
    text = " ".join(said.err.split())
    assert "2 profiles are not as in the backup: changed.yaml, special.yaml" in text
    assert "SANDBOXER_PROFILES_DIR" in text
    assert (fresh / "restored-profiles" / "special.yaml").is_file()


def test_the_file_is_private_and_never_overwrites(cli: Cli, up: Up, saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    said = cli("backup", str(saved), "--state-dir", str(up.state_dir))
    assert said.code == Exit.ERROR
    assert "never overwrites" in said.err


def test_secrets_keep_their_mode(cli: Cli, saved: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    assert cli("restore", str(saved), "--state-dir", str(fresh), "--json").code == Exit.OK
    for name in ("owner.json", "master.key", "sandboxer.db"):
        assert stat.S_IMODE((fresh / name).stat().st_mode) == 0o600, name
    assert not list(fresh.glob(".restore-*"))


def test_a_folder_in_use_is_left_alone(cli: Cli, up: Up, saved: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "owner.json").write_text("{}")
    said = cli("restore", str(saved), "--state-dir", str(taken))
    assert said.code == Exit.ERROR
    assert "in use" in said.err
    assert (taken / "owner.json").read_text() == "{}"


def test_a_damaged_file_is_refused_before_anything_is_put_in_place(
    cli: Cli, saved: Path, tmp_path: Path
) -> None:
    tampered = tmp_path / "tampered.tar.gz"
    with tarfile.open(saved) as old, tarfile.open(tampered, "w:gz") as new:
        for member in old:
            data = old.extractfile(member)
            assert data is not None
            content = data.read()
            if member.name == "owner.json":
                content = content.replace(b"sbx-pk", b"sbx-xx")
            path = tmp_path / "piece"
            path.write_bytes(content)
            new.add(path, arcname=member.name)
    fresh = tmp_path / "fresh"
    said = cli("restore", str(tampered), "--state-dir", str(fresh), "--json")
    assert said.code == Exit.ERROR
    assert "damaged" in said.error["message"]
    assert [path.name for path in fresh.iterdir()] == ["lock"]


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b\x08broken"])
def test_what_is_no_backup_is_refused(cli: Cli, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    said = cli("restore", str(file), "--state-dir", str(tmp_path / "fresh"))
    assert said.code == Exit.ERROR
    assert "Traceback" not in said.err


def test_an_archive_that_points_outside_is_refused(cli: Cli, tmp_path: Path) -> None:
    manifest = {
        "format": 1,
        "created_at": "",
        "version": "0",
        "left_out": [],
        "entries": [{"name": "../evil", "sha256": "", "size": 0, "mode": 0o600}],
    }
    (tmp_path / "m").write_text(json.dumps(manifest))
    file = tmp_path / "evil.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tmp_path / "m", arcname="manifest.json")
        tar.add(tmp_path / "m", arcname="../evil")
    assert cli("restore", str(file), "--state-dir", str(tmp_path / "a" / "fresh")).code == Exit.ERROR
    assert not (tmp_path / "a" / "evil").exists()


def test_disks_are_taken_along_on_request(real_cli: Cli, real_up: Up, tmp_path: Path) -> None:
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as client, client.create() as sandbox:
        sandbox.files.write("/workspace/kept", b"precious")
        file = tmp_path / "full.tar.gz"
        said = real_cli("backup", str(file), "--with-disks", "--state-dir", str(real_up.state_dir), "--json")
        assert f"disks/{sandbox.id}.tar" in said.json["files"]
    fresh = tmp_path / "fresh"
    assert real_cli("restore", str(file), "--state-dir", str(fresh)).code == Exit.OK
    with tarfile.open(fresh / "restored-disks" / f"{sandbox.id}.tar") as disk:
        kept = disk.extractfile("upper/workspace/kept")
        assert kept is not None
        assert kept.read() == b"precious"

"""The runbook `restore.md`, "Put a disk back", word for word, and every checksum compared afterwards."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.cli import PROGRAM, Cli
from tests.support.platforms import Up

pytestmark = pytest.mark.slow
MEGABYTES = 300
FILL = f"""
mkdir -p /srv/data/deep && cd /srv/data
for n in 1 2 3 4 5 6; do head -c {MEGABYTES * 1_000_000 // 6} /dev/urandom > part$n; done
for n in $(seq 500); do head -c $n /dev/urandom > deep/$n; done
ln -s part1 link
"""
SUMS = "cd /srv/data && find . -type f -print0 | sort -z | xargs -0 sha256sum && readlink link"


def test_a_disk_that_was_put_back_has_every_byte(real_cli: Cli, real_up: Up, tmp_path: Path) -> None:
    with (
        Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as client,
        client.create(resources={"disk_mb": 1024}) as sandbox,
    ):
        assert sandbox.exec(FILL, timeout_s=300).exit_code == 0
        before = sandbox.exec(SUMS, timeout_s=300)
        assert before.exit_code == 0
        saved = tmp_path / "saved.tar.gz"
        state = str(real_up.state_dir)
        assert real_cli("backup", "--with-disks", "--state-dir", state, str(saved)).code == 0
        with tarfile.open(saved) as archive:
            archive.extract(f"disks/{sandbox.id}.tar", tmp_path, filter="data")
        assert real_cli("recreate", sandbox.id).code == 0
        assert sandbox.exec("ls /srv/data").exit_code != 0
        words = ["tar", "x", "--strip-components=1", "-C", "/", "--exclude=upper/etc/machine-id"]
        with (tmp_path / "disks" / f"{sandbox.id}.tar").open("rb") as disk:
            done = subprocess.run(
                [*PROGRAM, "exec", sandbox.id, "--", *words, "--exclude=upper/etc/host*"],
                env=real_cli.environment,
                stdin=disk,
                capture_output=True,
                timeout=600,
            )
        assert done.returncode == 0, done.stderr
        after = sandbox.exec(SUMS, timeout_s=300)
    assert after.stdout == before.stdout
    assert before.stdout.count("\n") == 507

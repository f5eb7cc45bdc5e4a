"""deploy/sandboxer.service: systemd accepts it, and what keeps sandboxes alive over a restart stays in it."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxer.edges.cli.installation import IN_UNIT
from sandboxer.settings import Settings

UNIT = Path(__file__).parents[2] / "deploy" / "sandboxer.service"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed (apt-get install systemd)"
)
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # The program is where an operator will have put it; here it is where the tests run.
    here = Path(sys.executable).parent / "sandboxer"
    text = UNIT.read_text().replace(IN_UNIT, str(here))
    copy = tmp_path / "sandboxer.service"
    copy.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    about_us = [line for line in checked.stderr.splitlines() if "sandboxer.service" in line]
    assert about_us == []
    assert checked.returncode == 0, checked.stderr


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("KillMode", "process"),
        ("Restart", "always"),
        ("OOMPolicy", "continue"),
        ("Delegate", "yes"),
        ("StateDirectoryMode", "0700"),
    ],
)
def test_what_sandboxes_need_to_survive_is_set(option: str, value: str) -> None:
    assert service()[option] == value


def test_the_service_gets_no_mount_namespace_of_its_own() -> None:
    """The storage pool mounted by one start must be there for the next."""
    giving_one = ("Private", "ProtectSystem", "ProtectHome", "ProtectKernel", "ProtectControl", "ProtectProc")
    giving_one += ("ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "BindPaths", "TemporaryFileSystem")
    giving_one += (
        "DynamicUser",
        "RootDirectory",
        "RootImage",
        "MountFlags",
        "ProtectHostname",
        "ProtectClock",
    )
    assert [option for option in service() if option.startswith(giving_one)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="sandboxes need root")
def test_the_units_command_makes_sandboxes_with_its_capabilities_and_umask(tmp_path: Path) -> None:
    """No systemd runs here, so what it would set is set by hand."""
    if not (Settings().images_dir / "base" / "image.json").is_file():
        pytest.skip("the base image is not built (make image)")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    capabilities = service()["CapabilityBoundingSet"].lower().replace("cap_", "+").replace(" ", ",")
    words = shlex.split(service()["ExecStart"])
    replaced = {
        words[0]: str(Path(sys.executable).parent / "sandboxer"),
        "/var/lib/sandboxer": str(state),
    }
    command = [replaced.get(word, word) for word in words]
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SANDBOXER_IMAGES_DIR": str(Settings().images_dir),
        "SANDBOXER_POOL_SIZE_MB": "2048",
        "SANDBOXER_PORT": "0",
    }
    try:
        done = subprocess.run(
            ["setpriv", f"--bounding-set=-all,{capabilities}", *command, "--demo", "--once"],
            env=environment,
            umask=int(service()["UMask"], 8),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "its output" in done.stdout
    finally:
        subprocess.run(["umount", state / "pool"], check=False)
        (state / "pool.btrfs").unlink(missing_ok=True)

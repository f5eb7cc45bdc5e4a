"""deploy/sandboxer.service: systemd accepts it, and what keeps sandboxes alive over a restart stays in it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "sandboxer.service"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed (apt-get install systemd)"
)
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # The program is where an operator will have put it; here it is where the tests run.
    here = Path(sys.executable).parent / "sandboxer"
    text = UNIT.read_text().replace("/opt/sandboxer/.venv/bin/sandboxer", str(here))
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

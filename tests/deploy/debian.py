"""A clean Debian 12 in a folder, and what is put into it to be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sandboxer.settings import Settings

ROOT = Path(__file__).parents[2]


def make_debian(root: Path, *packages: str) -> None:
    """Makes it, with the names and authorities of this machine, and its base image as `/base.tar`."""
    included = f"--include={','.join(('ca-certificates', *packages))}"
    debian = ["mmdebstrap", "--quiet", "--variant=minbase", included, "bookworm", str(root)]
    subprocess.run(debian, check=True, timeout=900)
    for file in ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(file, root / file[1:])
    image = Settings().images_dir / "base"
    subprocess.run(["tar", "-c", "-f", root / "base.tar", "-C", image, "image.json", "rootfs"], check=True)


def build_wheel(folder: Path) -> Path:
    built = {"VENV": str(Path(sys.executable).parents[1])}
    subprocess.run([ROOT / "scripts" / "build-wheel", folder], check=True, env=os.environ | built)
    (found,) = folder.glob("*.whl")
    return found

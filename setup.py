"""What a wheel carries besides the modules: the guest's programs, profiles, recipes of images, the unit.

`scripts/build-wheel` builds the guest and then this; everything else is in pyproject.toml.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PROGRAMS = ("supervisor", "launcher", "stager", "sudo", "client")


class BuildWithFiles(build_py):
    """Puts them into `sandboxer/data`, where `kernel/program.py` looks. Not for editable installs."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "sandboxer" / "data"
        shutil.rmtree(data, ignore_errors=True)
        for name in ("profiles", "images", "deploy"):
            shutil.copytree(ROOT / name, data / name)
        for machine, folder in guests():
            (data / "guest" / machine).mkdir(parents=True)
            for program in PROGRAMS:
                shutil.copy(folder / program, data / "guest" / machine / program)


def guests() -> list[tuple[str, Path]]:
    """Kinds of machine and where programs for them were built: for this one, and by cross compilers."""
    build = ROOT / "guest" / "build"
    if not all((build / program).is_file() for program in PROGRAMS):
        # From a source distribution: pip has no other way to ask for it.
        subprocess.run(["make", "--no-print-directory", "-s", "-C", str(ROOT / "guest")], check=False)
    if not all((build / program).is_file() for program in PROGRAMS):
        raise SystemExit("The guest is not built, and a wheel without it is of no use: install gcc and make.")
    others = [folder.parent for folder in sorted(build.glob("*/launcher"))]
    return [(platform.machine(), build), *((folder.name, folder) for folder in others)]


setup(cmdclass={"build_py": BuildWithFiles})

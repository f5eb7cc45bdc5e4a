"""Clients of other languages: built from the checkout, and their own tests run against a platform of ours."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.e2b import node_with

ROOT = Path(__file__).resolve().parents[2]
TYPESCRIPT = ROOT / "clients" / "typescript"
GO = ROOT / "clients" / "go"
CHROMIUM = "153.0.0"
UNPACK = """
const { brotliDecompressSync } = require("node:zlib");
const { existsSync, readFileSync, writeFileSync } = require("node:fs");
for (const [packed, name] of [["al2023.tar.br", "libraries.tar"], ["chromium.br", "chromium"]]) {
  if (existsSync(name)) continue;
  const bytes = readFileSync(`node_modules/@sparticuz/chromium/bin/${packed}`);
  writeFileSync(name, brotliDecompressSync(bytes), { mode: 0o755 });
}
"""


def run(words: list[str], folder: Path, environment: Mapping[str, str], timeout_s: float = 100) -> str:
    """Runs a program to its end; what it said is what a failed test shows."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built_typescript() -> Path:
    """Returns the folder of the client and its tests as JavaScript."""
    if shutil.which("npm") is None:
        pytest.skip("no npm (apt-get install npm)")
    plain = dict(os.environ)
    run([str(ROOT / "scripts" / "make-node-modules")], ROOT, plain, timeout_s=600)
    build = TYPESCRIPT / "build" / (os.environ.get("PYTEST_XDIST_WORKER") or "tests")
    run(["node_modules/.bin/tsc", "-p", "tsconfig.test.json", "--outDir", str(build)], TYPESCRIPT, plain)
    return build


def packed_typescript(folder: Path) -> Path:
    """Returns the package, packed into a folder."""
    words = ["npm", "pack", "--silent", "--pack-destination", str(folder)]
    return folder / run(words, TYPESCRIPT, os.environ).split()[-1]


def install(package: Path, folder: Path) -> None:
    """Makes a project of a folder, with nothing but the package in it; no network is needed."""
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    run(["npm", "install", "--offline", "--no-audit", "--no-fund", str(package)], folder, os.environ)


def program_in(page: str, language: str) -> str:
    """Returns the first program of a language that a guide shows whole."""
    text = (ROOT / "docs" / "guides" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]


def chromium() -> tuple[str, dict[str, str]]:
    """Returns a browser without a window and what it needs in its environment, unpacked once."""
    if platform.machine() != "x86_64":
        pytest.skip("which browser to take is written for x86-64")
    folder = node_with(f"@sparticuz/chromium@{CHROMIUM}")
    run(["node", "-e", UNPACK], folder, os.environ)
    libraries = folder / "libraries"
    if not libraries.is_dir():
        with tarfile.open(folder / "libraries.tar") as tar:
            tar.extractall(libraries, filter="data")
    found = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(libraries / "lib"), "HOME": str(folder)}
    return str(folder / "chromium"), found

"""A new operation appears in every client and in the reference by one command, `make generate`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.languages import ROOT, TYPESCRIPT, run

pytestmark = pytest.mark.slow
NEEDED = ("src", "scripts", "docs", "clients", "deploy", "profiles", "Makefile", "pyproject.toml")
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-install.lock")
ENTRY = """
SHOW_DEPTH_OF_POOL = _INTROSPECTION.operation(
    "showDepthOfPool", "GET /v1/pools/depth", "Show how deep the pool is", Pools
)
"""
NOT_COPIED = shutil.ignore_patterns("node_modules", "build", "dist", "__pycache__")


def test_a_new_operation_is_in_every_client_and_in_the_reference(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=NOT_COPIED, symlinks=True)
        else:
            shutil.copy(ROOT / name, copy / name)
    for name in LOCKS:
        shutil.copy(ROOT / name, copy / name)
    assert _made(copy) == set(), "what is generated was not up to date"

    _declared(copy)
    assert _made(copy) >= {
        "clients/go/calls.go",
        "clients/typescript/src/generated/tools.ts",
        "clients/typescript/src/generated/calls.ts",
        "docs/reference/http.md",
        "src/sandboxer/sdk/calls/platform.py",
    }
    assert "func (c *Client) ShowDepthOfPool(" in (copy / "clients/go/calls.go").read_text()
    assert (
        "export const showDepthOfPool =" in (copy / "clients/typescript/src/generated/calls.ts").read_text()
    )
    assert "Show how deep the pool is" in (copy / "docs/reference/http.md").read_text()
    assert "def show_depth_of_pool(" in (copy / "src/sandboxer/sdk/calls/platform.py").read_text()
    _compiles(copy)


def _declared(copy: Path) -> None:
    """Adds an entry to the table, and the line that binds it."""
    table = copy / "src/sandboxer/wire/operations/platform.py"
    table.write_text(table.read_text() + ENTRY)
    routes = copy / "src/sandboxer/edges/http/routes/platform.py"
    bound = "    bind(operations.LIST_POOLS, pools),\n"
    text = routes.read_text()
    assert bound in text
    routes.write_text(text.replace(bound, f"{bound}    bind(operations.SHOW_DEPTH_OF_POOL, pools),\n"))


def _made(copy: Path) -> set[str]:
    """Which files the one command wrote."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "VENV": str(ROOT / ".venv")}
    said = run(["make", "generate"], copy, environment, timeout_s=300)
    return set(re.findall(r"^wrote (\S+)$", said, re.MULTILINE))


def _compiles(copy: Path) -> None:
    if shutil.which("go"):
        subprocess.run(["go", "vet", "./..."], cwd=copy / "clients/go", check=True, timeout=300)
    modules = TYPESCRIPT / "node_modules"
    if modules.is_dir():
        (copy / "clients/typescript/node_modules").symlink_to(modules)
        words = ["node_modules/.bin/tsc", "-p", ".", "--noEmit"]
        subprocess.run(words, cwd=copy / "clients/typescript", check=True, timeout=300)

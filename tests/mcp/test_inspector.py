"""The inspector of the protocol's own project, by its command line: it finds no fault in what we list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxer.edges.mcp.hosts import started
from tests.support.e2b import node_with
from tests.support.platforms import Up

pytestmark = pytest.mark.slow
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
ROOT = Path(__file__).resolve().parents[2]


def asked(where: str, token: str, *words: str) -> Any:
    head = ["--transport", "http", "--header", f"Authorization: Bearer {token}"]
    return said([where, *head, *words])


def said(words: list[str]) -> Any:
    program = node_with(INSPECTOR) / "node_modules/.bin/mcp-inspector"
    command = ["node", str(program), "--cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("offer", ["core", "standard", "all"])
def test_it_finds_no_schema_that_some_host_would_not_take(up: Up, token: str, offer: str) -> None:
    """`--strict` fails for a schema that is not portable."""
    listed = asked(f"{up.url}/mcp?tools={offer}", token, "--method", "tools/list", "--strict")
    assert len(listed["tools"]) >= 12


def test_it_makes_a_sandbox_and_uses_it(up: Up, token: str) -> None:
    def call(tool: str, *given: str) -> Any:
        arguments = [word for one in given for word in ("--tool-arg", one)]
        method = ["--method", "tools/call", "--tool-name", tool]
        return asked(f"{up.url}/mcp", token, *method, *arguments)

    assert not call("createSandbox", "name=inspected")["isError"]
    ran = call("runCommand", "sandbox_id=inspected", "command=echo hi")
    assert ran["structuredContent"]["stdout"] == "hi\n"
    assert call("destroySandbox", "sandbox_id=inspected")["structuredContent"]["state"] == "destroyed"
    assert asked(f"{up.url}/mcp", token, "--method", "prompts/list")["prompts"]
    assert asked(f"{up.url}/mcp", token, "--method", "resources/templates/list")["resourceTemplates"]


def test_it_starts_the_server_from_the_configuration_that_we_print(up: Up, tmp_path: Path) -> None:
    words = ["-m", "sandboxer.edges.cli.main", "mcp", "--tools", "core"]
    config = json.loads(started("claude", sys.executable, words))
    config["mcpServers"]["sandboxer"]["env"] = {**up.environment, "PYTHONPATH": str(ROOT / "src")}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config))
    listed = said(["--config", str(file), "--server", "sandboxer", "--method", "tools/list"])
    assert len(listed["tools"]) == 12

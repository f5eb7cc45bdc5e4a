"""Real hosts of models read the configuration that `sandboxer mcp --config` prints, and connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxer.edges.mcp.hosts import Host, spoken_to, started
from tests.support.e2b import node_with
from tests.support.platforms import Up

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
CODEX, GEMINI = "@openai/codex@0.169.0", "@google/gemini-cli@0.61.0"
CLAUDE = "@anthropic-ai/claude-code@2.1.327"
WORDS = ("-m", "sandboxer.edges.cli.main", "mcp", "--tools", "core")
TOKEN = "SANDBOXER_API_KEY"


def configured(host: Host, up: Up) -> str:
    """What is printed; with the environment that a host of this test has to give to what it starts."""
    config: dict[str, Any] = json.loads(started(host, sys.executable, WORDS))
    ours = {name: value for name, value in up.environment.items() if name.startswith("SANDBOXER_")}
    config["mcpServers"]["sandboxer"]["env"] = {**ours, "PYTHONPATH": str(ROOT / "src")}
    return json.dumps(config)


def told(home: Path, program: Path, **more: str) -> str:
    """What the host says of its servers, once it has tried them."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    done = subprocess.run(
        [str(program), "mcp", "list", *(["--json"] if "codex" in program.name else [])],
        cwd=home,
        env={**plain, "HOME": str(home), "CODEX_HOME": str(home), **more},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_gemini_connects_both_ways(up: Up, token: str, tmp_path: Path) -> None:
    program = node_with(GEMINI) / "node_modules/.bin/gemini"
    settings = tmp_path / ".gemini"
    settings.mkdir()
    (settings / "trustedFolders.json").write_text(json.dumps({str(tmp_path): "TRUST_FOLDER"}))
    (settings / "settings.json").write_text(configured("gemini", up))
    assert "- Connected" in told(tmp_path, program)
    (settings / "settings.json").write_text(spoken_to("gemini", f"{up.url}/mcp", TOKEN))
    assert "- Connected" in told(tmp_path, program, **{TOKEN: token})


def test_claude_code_connects_both_ways(up: Up, token: str, tmp_path: Path) -> None:
    program = node_with(CLAUDE) / "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    settings = tmp_path / ".claude"
    settings.mkdir()
    (settings / "settings.json").write_text(json.dumps({"enableAllProjectMcpServers": True}))
    (tmp_path / ".mcp.json").write_text(configured("claude", up))
    assert "Connected" in told(tmp_path, program)
    (tmp_path / ".mcp.json").write_text(spoken_to("claude", f"{up.url}/mcp", TOKEN))
    assert "Connected" in told(tmp_path, program, **{TOKEN: token})


def test_codex_reads_both_forms(tmp_path: Path) -> None:
    program = node_with(CODEX) / "node_modules/.bin/codex"
    config = tmp_path / "config.toml"
    config.write_text(started("codex", "/usr/bin/sandboxer", ["mcp"]))
    read = json.loads(told(tmp_path, program))[0]["transport"]
    assert (read["type"], read["command"], read["args"]) == ("stdio", "/usr/bin/sandboxer", ["mcp"])
    config.write_text(spoken_to("codex", "https://a.example/mcp", TOKEN))
    read = json.loads(told(tmp_path, program))[0]["transport"]
    assert (read["type"], read["bearer_token_env_var"]) == ("streamable_http", TOKEN)

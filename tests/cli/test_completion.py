"""Completion, by the shells themselves: verbs, options, and what is there now."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli

# How each shell is asked what it would offer for a line, its last word half typed.
ASKED = {
    "bash": """source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_sandboxer 2>/dev/null; printf '%s\\n' "${{COMPREPLY[@]}}" """,
    "zsh": """compdef() {{ }}; _files() {{ }}; _describe() {{ print -rl -- "${{(@P)2}}" }}; source {script}
words=({words}); CURRENT=$#words; _sandboxer""",
    "fish": "source {script}; complete -C '{plain}'",
}
QUIET = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}


class Shells:
    def __init__(self, cli: Cli, folder: Path) -> None:
        program = folder / "bin" / "sandboxer"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sandboxer.edges.cli.main "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        self.folder = folder
        self.environment = cli.environment | {"PATH": path, "HOME": str(folder), "SANDBOXER_CONFIG_DIR": ""}
        self.cli = cli

    def offer(self, shell: str, *words: str, **more: str) -> list[str]:
        script = self.folder / f"script.{shell}"
        script.write_text(self.cli("completion", shell).out)
        quoted = " ".join(word or "''" for word in words)
        text = ASKED[shell].format(
            script=script, words=f"sandboxer {quoted}", plain=" ".join(("sandboxer", *words))
        )
        done = subprocess.run(
            [shell, *QUIET[shell], "-c", text],
            env=self.environment | more, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return [line.replace("\t", ":").partition(":")[0] for line in done.stdout.splitlines() if line]


@pytest.fixture
def shells(cli: Cli, tmp_path: Path) -> Shells:
    return Shells(cli, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_offers_verbs_options_and_live_names(shells: Shells, sandbox: Sandbox, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    made = shells.cli("create", "--name", "devbox", "--json").json["id"]
    assert "exec" in shells.offer(shell, "exe")
    assert shells.offer(shell, "create", "--prof") == ["--profile"]
    assert shells.offer(shell, "exec", "devb") == ["devbox"]
    assert sandbox.id in shells.offer(shell, "rm", "sbx_")
    assert shells.offer(shell, "snapshot", "sho") == ["show"]
    assert shells.offer(shell, "create", "--profile", "agent-d") == ["agent-dev"]
    shells.cli("delete", made)


def test_names_with_blanks_come_quoted(shells: Shells) -> None:
    made = shells.cli("create", "--name", "my box", "--json").json["id"]
    assert shells.offer("bash", "exec", "my") == ["'my box'"]
    shells.cli("delete", made)


def test_no_name_brings_lines_or_commands_of_its_own(shells: Shells) -> None:
    """A platform that means harm chooses its names; a line of it would stand unquoted on the person's."""
    named = {f"x{bad}": {"url": "http://127.0.0.1:9"} for bad in ("\n$(id)\ny", "\x1b[2J", "\x9b2J", "$(id)")}
    folder = shells.folder / ".config/sandboxer"
    folder.mkdir(parents=True)
    (folder / "contexts.json").write_text(json.dumps({"contexts": named}))
    assert shells.offer("bash", "context", "use", "x") == ["'x$(id)'"]


def test_a_platform_that_does_not_answer_is_no_hindrance(shells: Shells) -> None:
    begun = time.monotonic()
    assert shells.offer("bash", "exec", "x", SANDBOXER_URL="http://192.0.2.1:9") == []
    assert time.monotonic() - begun < 8
    nobody = {"SANDBOXER_CREDENTIALS": "/nowhere", "SANDBOXER_STATE_DIR": "/nowhere"}
    assert shells.offer("bash", "exec", "x", **nobody) == []
    assert "exec" in shells.offer("bash", "exe", **nobody)


def test_asking_again_at_once_does_not_ask_the_platform(shells: Shells, sandbox: Sandbox) -> None:
    first = shells.offer("bash", "exec", "sbx_")
    kept = shells.folder / ".config/sandboxer/completion.json"
    assert sandbox.id in first
    assert sandbox.id in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_install_writes_where_the_shell_looks(shells: Shells, tmp_path: Path) -> None:
    said = shells.cli("completion", "bash", "--install", HOME=str(tmp_path))
    assert said.code == 0, said.err
    file = tmp_path / ".local/share/bash-completion/completions/sandboxer"
    assert "complete -F _sandboxer" in file.read_text()
    assert shells.cli("completion", "tcsh").code == 1

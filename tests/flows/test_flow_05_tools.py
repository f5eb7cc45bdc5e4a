"""Flow 5 of the paper, tools: what an agent installs, and what is inside before it installs anything."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import pytest

from sandboxer import __version__
from tests.deploy.debian import build_wheel
from tests.support.cli import Cli
from tests.support.flows import Charging


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_alone_brings_an_agent_everything_and_checks_the_platform(
    charging: Charging, tmp_path: Path
) -> None:
    """In an environment that has the client and nothing of the platform."""
    wheel, folder = build_wheel(tmp_path / "wheel"), tmp_path / "agent"
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(pip, check=True)
    program = folder / "bin" / "sandboxer"

    def said(*words: str) -> str:
        done = subprocess.run(
            [program, *words], env=charging.environment, cwd="/", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("--version") == f"sandboxer {__version__}\n"
    assert "sandboxer" in said("completion", "bash")
    made = json.loads(said("create", "--ttl", "10m", "--json"))["id"]
    inside = json.loads(said("exec", made, "--", "sandboxer", "discover", "--json"))
    assert inside["id"] == made
    said("delete", made)
    checked = json.loads(said("flows", "check", "--only", "1", "--only", "9", "--json"))
    assert checked["fine"]
    assert {one["verdict"] for one in checked["checks"]} == {"passed"}


def test_the_command_line_tells_programs_and_people_what_was_checked(charging: Charging) -> None:
    cli = Cli(charging.environment)
    said = cli("flows", "check", charging.up.url, "--only", "5", "--json")
    assert said.code == 0, said.err
    assert {one["flow"] for one in said.json["checks"]} == {5}
    shown = cli("flows", "check", "--only", "3")
    assert shown.code == 0, shown.err
    assert "not offered" in shown.out
    assert "nothing is paid by x402 here" in shown.out
    assert "fails none: 5 not offered, 1 not tried." in shown.out
    poor = cli("flows", "check", "--only", "13", "--most-sats", "10", "--json").json["checks"]
    assert {one["verdict"] for one in poor} == {"not_tried", "passed"}
    assert cli("flows", "check", "--only", "15").code == 2
    assert [one["flow"] for one in cli("flows", "list", "--json").json["items"]] == list(range(1, 15))


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(5)

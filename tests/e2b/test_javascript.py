"""E2B's own JavaScript clients, in node: commands, terminals, files, code, pause and refusals."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from testchains.stacks.simnet import installed, why_not
from tests.support.e2b import Names, Tls

FOLDER = Path(__file__).with_name("node")


@pytest.fixture(scope="module")
def program() -> list[str]:
    if why := why_not():
        pytest.skip(why)
    return ["node", str(installed(FOLDER, "e2b") / "features.mjs")]


def seen_by(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, object]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    seen: dict[str, object] = json.loads(done.stdout)
    return seen


def test_a_program_in_node_does_what_it_does_with_e2b(real_key: str, program: list[str]) -> None:
    seen = seen_by(program, os.environ)
    assert seen.pop("signed addresses") is False
    assert {name: said for name, said in seen.items() if said is not True} == {}


def test_a_domain_and_a_key_are_enough_for_it(tls: Tls, tmp_path: Path, program: list[str]) -> None:
    names = Names(tmp_path)
    seen = seen_by(names.command(program), tls.environment)
    names.close()
    assert {name: said for name, said in seen.items() if said is not True} == {}

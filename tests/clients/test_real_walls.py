"""Clients of other languages on real walls: sessions, the programs of the guides, and what they take."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.languages import GO, TYPESCRIPT, install, program_in, run
from tests.support.platforms import Up, real_platform, why_not_real

pytestmark = pytest.mark.slow
# In turns so short that what else the machine does is the same for both.
WARM, TURNS, LOOPS = 12, 50, 2
MOST = 1.2


@pytest.fixture(scope="module")
def walls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    with real_platform(tmp_path_factory.mktemp("platform") / "state") as up:
        yield up


def test_sessions_and_streams_work_on_real_walls(typescript: Path, walls: Up) -> None:
    words = ["node", "--test", str(typescript / "test" / "session.test.js")]
    assert "# pass 4" in run(words, TYPESCRIPT, walls.environment)


def test_the_program_of_the_typescript_guide_does_what_the_guide_shows(
    package: Path, walls: Up, tmp_path: Path
) -> None:
    install(package, tmp_path)
    (tmp_path / "first.ts").write_text(program_in("typescript.md", "ts"))
    modules = TYPESCRIPT / "node_modules"
    (tmp_path / "node_modules" / "@types").symlink_to(modules / "@types")
    words = ["--target", "es2022", "--module", "nodenext", "--strict", "--types", "node", "first.ts"]
    run([str(modules / ".bin" / "tsc"), *words], tmp_path, walls.environment)
    said = run(["node", "first.js"], tmp_path, walls.environment)
    assert re.fullmatch(r"sbx_\w+ 3 GNU/Linux\n0\n1\n4\n42\nfor i in range\(3\): print\(i \* i\)\n", said)


def test_the_program_of_the_go_guide_does_what_the_guide_shows(walls: Up, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("no go (apt-get install golang-go)")
    name = "sandboxer.example/go"
    (tmp_path / "go.mod").write_text(
        f"module demo\n\ngo 1.21\n\nrequire {name} v0.0.0\n\nreplace {name} => {GO}\n"
    )
    (tmp_path / "main.go").write_text(program_in("go.md", "go"))
    said = run(["go", "run", "."], tmp_path, walls.environment)
    lines = said.splitlines()
    assert re.fullmatch(r"sbx_\w+ 3 GNU/Linux", lines[0])
    assert [line.split()[0] for line in lines[1:]] == ["started", "stdout", "exit"]


@pytest.mark.alone
def test_create_exec_destroy_takes_at_most_a_fifth_more_than_pythons(typescript: Path, walls: Up) -> None:
    """In turns, each client with connections that stand already."""
    words = ["node", str(typescript / "test" / "loop.js")]
    took: dict[str, list[float]] = {"python": [], "typescript": []}
    with (
        subprocess.Popen(
            words,
            cwd=TYPESCRIPT,
            env=walls.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as node,
        Sandboxer(owner_file=walls.owner_file, url=walls.url) as client,
    ):
        _by_node(node, WARM)
        _by_python(client, WARM)
        for _ in range(TURNS):
            took["typescript"] += _by_node(node, LOOPS)
            took["python"] += _by_python(client, LOOPS)
        assert node.stdin is not None
        node.stdin.close()
    # The lower quartile: above it is what else the machine did.
    ours, theirs = (statistics.quantiles(took[one], n=4)[0] for one in ("typescript", "python"))
    print(f"typescript {ours:.1f} ms, python {theirs:.1f} ms, {ours / theirs:.2f}")
    assert ours <= MOST * theirs, f"{ours:.1f} ms against {theirs:.1f} ms"


def _by_node(node: subprocess.Popen[str], loops: int) -> list[float]:
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(f"{loops}\n")
    node.stdin.flush()
    return list(json.loads(node.stdout.readline()))


def _by_python(client: Sandboxer, loops: int) -> list[float]:
    took = []
    for _ in range(loops):
        began = time.perf_counter()
        sandbox = client.create()
        sandbox.exec(["true"])
        sandbox.destroy()
        took.append((time.perf_counter() - began) * 1000)
    return took

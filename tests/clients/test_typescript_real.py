"""The TypeScript client on real walls: sessions, streams that are left, and what it takes beside Python's."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.languages import TYPESCRIPT, run
from tests.support.platforms import Up, real_platform, why_not_real

pytestmark = pytest.mark.slow
BLOCKS, LOOPS = 8, 12
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


@pytest.mark.alone
def test_create_exec_destroy_takes_at_most_a_fifth_more_than_pythons(typescript: Path, walls: Up) -> None:
    """In turns, block by block, each client with connections that stand already."""
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
        _by_node(node, 3)
        _by_python(client, 3)
        for _ in range(BLOCKS):
            took["typescript"] += _by_node(node, LOOPS)
            took["python"] += _by_python(client, LOOPS)
        assert node.stdin is not None
        node.stdin.close()
    ours, theirs = statistics.median(took["typescript"]), statistics.median(took["python"])
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

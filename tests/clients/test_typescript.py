"""The TypeScript client against a real server, by its own tests in Node's test runner."""

from __future__ import annotations

from pathlib import Path

from tests.support.languages import TYPESCRIPT, run
from tests.support.platforms import Up


def test_its_own_tests_pass_against_a_real_server(typescript: Path, up: Up) -> None:
    files = [str(typescript / "test" / f"{name}.test.js") for name in ("client", "events")]
    said = run(["node", "--test", *files], TYPESCRIPT, up.environment)
    assert "# fail 0" in said
    assert "# pass 17" in said

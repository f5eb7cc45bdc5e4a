"""What a command loads: what it needs, and no more."""

from __future__ import annotations

import subprocess
import sys

from tests.support.platforms import Up

LIST = """
import sys
from sandboxer.edges.cli.main import run
code = run(["list"])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""
# Those of one noun, with its events, and the words that all share.
MODELS = {"sandboxes", "words"}
# Building what has to do with files, other nouns, terminals or wallets takes longer than asking.
NEVER = {"websockets", "segno", "asyncio.sslproto", "yaml", "sqlalchemy", "fastapi"}


def test_a_list_loads_the_models_of_sandboxes_and_of_no_other_noun(up: Up) -> None:
    words = [sys.executable, "-c", LIST]
    done = subprocess.run(words, env=up.environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    models = {name.removeprefix("sandboxer.wire.") for name in loaded if name.startswith("sandboxer.wire.")}
    assert models == MODELS
    assert not loaded & NEVER
    assert not [name for name in loaded if name.startswith("sandboxer.sdk.aio")]

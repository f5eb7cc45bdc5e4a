"""The recipes of docs/guides/curl.md: each block runs, and answers what the page shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.languages import ROOT
from tests.support.payments.x402 import RATES, SIGNER_KEY, settings_for
from tests.support.platforms import scripted_platform

__all__ = ["evm"]
PAGE = ROOT / "docs" / "guides" / "curl.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
# Between what two blocks say.
MARK = "-- end of a block --"


def test_every_block_answers_what_the_page_shows(evm: Anvil, tmp_path: Path) -> None:
    if missing := [name for name in ("curl", "jq", "openssl") if shutil.which(name) is None]:
        pytest.skip(f"no {missing[0]} (apt-get install {missing[0]})")
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 9
    script = "set -euo pipefail\n" + "".join(f"{code}echo '{MARK}'\n" for code, _ in blocks)
    paid = {
        "x402": settings_for(evm),
        "x402_signer_key": SIGNER_KEY,
        "fixed_rates": {asset: str(price) for asset, price in RATES.items()},
    }
    with scripted_platform(tmp_path / "state", **paid) as up:
        owner = json.loads(up.owner_file.read_text())
        with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
            token = client.keys.issue_bearer(owner["public_key"]).bearer_token
        told = {"KEY": token, "pk": owner["public_key"], "sk": owner["secret_key"], "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            ["bash", "-c", script],
            env={**up.environment, **told},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    said = done.stdout.split(f"{MARK}\n")
    shown = [text for _, text in blocks]
    for text, seen in zip(shown, said[: len(blocks)], strict=False):
        assert _is_as_shown(text, seen), f"the page shows\n{text}\nand it says\n{seen}\n{done.stderr}"
    assert done.returncode == 0, done.stdout + done.stderr


def _is_as_shown(text: str, seen: str) -> bool:
    """`…` on the page stands for whatever is never the same, within a line."""
    pattern = re.escape(text).replace("…", r"[^\n]+")
    return re.fullmatch(pattern, seen) is not None

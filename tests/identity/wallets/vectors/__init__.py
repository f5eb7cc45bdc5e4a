"""Signatures made by other implementations (see `generate.mjs`), with throw-away keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load(name: str) -> Any:
    return json.loads((Path(__file__).parent / f"{name}.json").read_text())

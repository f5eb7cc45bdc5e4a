"""The command line: verbs that ask a platform, and verbs of the platform itself."""

from __future__ import annotations

import gc
import importlib
import os
import sys


def main() -> None:
    """The console script, which first leaves out what libraries do at import and no verb uses."""
    # What is imported stays until the end: the collector would walk it again and again (`main.load`).
    gc.disable()
    # Pydantic would read the metadata of every installed package in search of plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # Httpx would load its own command line, with a highlighter for 500 languages.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    importlib.import_module("sandboxer.edges.cli.main").main()

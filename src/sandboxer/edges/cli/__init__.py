"""The command line: verbs that ask a platform, and verbs of the platform itself."""

from __future__ import annotations

import gc
import importlib


def main() -> None:
    """The console script.

    A command imports hundreds of modules and keeps them. Until its verb is loaded (`verbs.load`) the
    collector would only walk them again and again, for a fifth of the time.
    """
    gc.disable()
    importlib.import_module("sandboxer.edges.cli.main").main()

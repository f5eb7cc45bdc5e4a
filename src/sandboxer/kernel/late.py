"""Imports modules when they are first used, and not before.

The libraries of payment networks, of PostgreSQL or of wallets take seconds of CPU to import, and most
platforms use few of them. A module that needs one at some call only writes:

    if TYPE_CHECKING:
        import segno
    else:
        segno = late("segno")
"""

from __future__ import annotations

import importlib
from typing import Any


def late(name: str) -> Any:
    """Returns a stand-in for the module `name`. Asking it for an attribute imports the module, once, from
    any thread.
    """
    return _Late(name)


class _Late:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)

    def __repr__(self) -> str:
        return f"<{self._name}, imported when it is used>"

"""Imports modules when they are first used, and finds the files that come with the program.

The libraries of payment networks, of PostgreSQL or of wallets take seconds of CPU to import, and most
platforms use few of them. A module that needs one at some call only writes:

    if TYPE_CHECKING:
        import segno
    else:
        segno = late("segno")

The files are the guest's programs, profiles, recipes of images and the systemd unit. A wheel carries them
beside the modules, in `sandboxer/data` (`setup.py` puts them there), with the guest's programs for each kind
of machine. In a checkout they are where they are written: at its top.
"""

from __future__ import annotations

import gc
import importlib
import platform
import sys
from pathlib import Path
from typing import Any


def late(name: str) -> Any:
    """Returns a stand-in for the module `name`. Asking it for an attribute imports the module, once, from
    any thread.
    """
    return _Late(name)


def imported(name: str) -> Any:
    """Imports a module. What is imported stays until the end: the collector need not walk it, now or ever
    again.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if is_on:
            gc.enable()


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # Of one that is there already, too: another thread may be in the midst of importing it.
        find = importlib.import_module if self._name in sys.modules else imported
        found = getattr(find(self._name), attribute)
        if isinstance(found, type):
            # Every answer asks for its model.
            setattr(self, attribute, found)
        return found

    def __repr__(self) -> str:
        return f"<{self._name}, imported when it is used>"


# It came into the standard library with 3.14.
ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

_CHECKOUT = Path(__file__).resolve().parents[3]
_DATA = Path(__file__).resolve().parents[1] / "data"
_IS_WHEEL = _DATA.is_dir()

GUEST = _DATA / "guest" / platform.machine() if _IS_WHEEL else _CHECKOUT / "guest" / "build"
PROFILES = (_DATA if _IS_WHEEL else _CHECKOUT) / "profiles"
RECIPES = (_DATA if _IS_WHEEL else _CHECKOUT) / "images"
UNIT = (_DATA if _IS_WHEEL else _CHECKOUT) / "deploy" / "sandboxer.service"

"""Finds the files that come with the program: the guest's programs, profiles and recipes of images.

A wheel carries them beside the modules, in `sandboxer/data` (`setup.py` puts them there), with the guest's
programs for each kind of machine. In a checkout they are where they are written: at its top.
"""

from __future__ import annotations

import platform
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3]
_DATA = Path(__file__).resolve().parents[1] / "data"
_IS_WHEEL = _DATA.is_dir()

GUEST = _DATA / "guest" / platform.machine() if _IS_WHEEL else _CHECKOUT / "guest" / "build"
PROFILES = (_DATA if _IS_WHEEL else _CHECKOUT) / "profiles"
RECIPES = (_DATA if _IS_WHEEL else _CHECKOUT) / "images"

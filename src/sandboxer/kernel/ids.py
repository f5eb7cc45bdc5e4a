"""Makes and checks ids: a prefix that says what they name and 26 random characters (128 bits, base 32)."""

from __future__ import annotations

import re
import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SANDBOX_ID = re.compile(r"^sbx_[0-9a-hjkmnp-tv-z]{26}$")
_VOLUME_ID = re.compile(r"^vol_[0-9a-hjkmnp-tv-z]{26}$")
_KEPT_ID = re.compile(r"^(?!sbx|vol)[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}$")


def new_id(prefix: str) -> str:
    number = secrets.randbits(130)
    return prefix + "_" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(0, 130, 5))


def is_sandbox_id(text: str) -> bool:
    """Checks the form strictly: ids become paths and cgroup names."""
    return _SANDBOX_ID.match(text) is not None


def is_kept_id(text: str) -> bool:
    """Checks the id of a disk that is kept read-only without a sandbox (a snapshot, an image). It becomes
    a path.
    """
    return _KEPT_ID.match(text) is not None


def is_volume_id(text: str) -> bool:
    """Checks the id of a disk that sandboxes attach. It becomes a path."""
    return _VOLUME_ID.match(text) is not None

"""The hot wallet as an operator names it: a file, where its password lies, and how much may go out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import ASSETS, to_atomic
from sandboxer.payments.wallet.caps import Cap

_FIELDS = ("file", "password_file", "caps")
_CAP_FIELDS = ("payment", "day")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotWalletPlan:
    file: Path
    password_file: Path
    # By coin, in its smallest unit. Without a cap nothing is sent in a coin.
    caps: Mapping[str, Cap]


def read_hot_wallet(given: Mapping[str, Any], chains: frozenset[str]) -> HotWalletPlan | None:
    """`{"file": "/…/hot.wallet", "password_file": "/…", "caps": {"LTC": {"payment": "1", "day": "5"}}}`, caps
    in whole coins. None: there is no hot wallet, and refunds wait for the operator."""
    if not given:
        return None
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise _wrong(f"has no field {unknown[0]!r} (there are {', '.join(_FIELDS)})")
    caps = given.get("caps")
    if not isinstance(caps, Mapping) or not caps:
        raise _wrong('needs caps: {"LTC": {"payment": "1", "day": "5"}}')
    if strange := sorted(set(caps) - chains):
        raise _wrong(f"caps {strange[0]}, which is not among the chains that invoices are paid on")
    return HotWalletPlan(
        file=_path(given, "file"),
        password_file=_path(given, "password_file"),
        caps={code: _cap(code, cap) for code, cap in caps.items()},
    )


def _path(given: Mapping[str, Any], name: str) -> Path:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(f"needs a path as {name}")
    return Path(value).expanduser()


def _cap(code: str, given: object) -> Cap:
    if not isinstance(given, Mapping) or set(given) != set(_CAP_FIELDS):
        raise _wrong(f"needs exactly payment and day as the cap of {code}")
    amounts = []
    for name in _CAP_FIELDS:
        # No numbers: JSON's are binary fractions for many who write them.
        if not isinstance(given[name], str):
            raise _wrong(f'needs a text like "1.5" as {name} of {code}')
        amounts.append(to_atomic(given[name], ASSETS[code]))
    return Cap(*amounts)


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="hot_wallet", why=f"it {why}")

"""Finds backends by name: those shipped, and those that an installed package announces.

A backend is loaded when it is asked for. A package announces one with an entry point in the group
`sandboxer.backends`; its object takes the platform's settings and returns an async context manager.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any

from sandboxer.backends.contract import Backend
from sandboxer.kernel.errors import InvalidRequest, NotAvailable

GROUP = "sandboxer.backends"
SHIPPED: Mapping[str, str] = {
    "ext.namespaces": "sandboxer.backends.namespaces:open_backend",
    "ext.oci": "sandboxer.wiring.oci:open_backend",
    "ext.scripted": "sandboxer.backends.scripted:open_backend",
}

Opener = Callable[[Any], AbstractAsyncContextManager[Backend]]


def known() -> list[str]:
    """Returns the names of all backends that can be used here."""
    return sorted({*SHIPPED, *(entry.name for entry in entry_points(group=GROUP))})


def find_opener(name: str) -> Opener:
    """Returns the function that opens this backend. Raises InvalidRequest for an unknown name,
    NotAvailable if it cannot load.
    """
    place = SHIPPED.get(name) or _announced(name)
    module, _, attribute = place.partition(":")
    try:
        opener: Opener = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise NotAvailable(what=f"backend {name}", why=f"it cannot be loaded: {error}") from error
    return opener


def _announced(name: str) -> str:
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.value
    close = difflib.get_close_matches(name, known(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known())}"
    raise InvalidRequest(field="backends", why=f"there is no backend {name}; {hint}")

"""Statements compiled once for each test process: a schedule opens a server again and again, each with
engines of its own, and a third of its time went into compiling the same statements for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from sandboxer.store import databases

_real = databases._engine
_MOST = 4000


class _Compiled(dict[Any, Any]):
    """SQLAlchemy names a statement by the dialect object too, which every engine has anew: those of one class
    compile alike here, since all engines are made with the same options."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_name(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= _MOST:
            self.clear()
        super().__setitem__(_name(key), value)


def _name(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return (type(key[0]), *key[1:])


_compiled = _Compiled()


@contextmanager
def shared_statements() -> Iterator[None]:
    """Whoever opens a database meanwhile shares what was compiled before."""
    databases._engine = _engine
    try:
        yield
    finally:
        databases._engine = _real


def _engine(*given: Any, **options: Any) -> Engine:
    made = _real(*given, **options)
    made._compiled_cache = _compiled  # type: ignore[assignment]
    return made

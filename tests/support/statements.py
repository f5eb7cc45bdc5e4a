"""Statements compiled once for each test process: every platform and store has engines of its own, and a
third of the time of opening one, and of many a test, went into compiling the same statements again.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.sql.compiler import SQLCompiler

from sandboxer.store import databases
from sandboxer.store.sealed import SealedBytes, SealedJson

_real = databases._engine
_MOST = 4000
_shared: dict[tuple[Any, ...], Any] = {}


class _Compiled:
    """What an engine has compiled, or another one for it: those of one class compile alike, since all engines
    are made with the same options. Only what is sealed knows the key of its own engine."""

    def __init__(self, own: MutableMapping[Any, Any]) -> None:
        self._own = own

    def get(self, key: Any, default: Any = None) -> Any:
        found = _shared.get(_name(key))
        return self._own.get(key, default) if found is None else found

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if _is_sealed(compiled):
            self._own[key] = compiled
            return
        if len(_shared) >= _MOST:
            _shared.clear()
        _shared[_name(key)] = compiled

    def clear(self) -> None:
        self._own.clear()


def _name(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLAlchemy names a statement by the dialect object too, which every engine has anew."""
    return (type(key[0]), *key[1:])


def _is_sealed(compiled: Any) -> bool:
    """Whether it has values that only the key of one database opens."""
    if not isinstance(compiled, SQLCompiler):
        return True
    types = [bind.type for bind in compiled.bind_names] + [column.type for column in compiled._result_columns]
    return any(isinstance(one, SealedBytes | SealedJson) for one in types)


@contextmanager
def shared_statements() -> Iterator[None]:
    """Whoever opens a database meanwhile shares what was compiled before."""
    before = databases._engine
    databases._engine = _engine
    try:
        yield
    finally:
        databases._engine = before


def _engine(*given: Any, **options: Any) -> Engine:
    made = _real(*given, **options)
    own: Any = made._compiled_cache
    made._compiled_cache = _Compiled(own)  # type: ignore[assignment]
    return made

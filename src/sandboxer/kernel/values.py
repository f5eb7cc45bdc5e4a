"""Makes what records consist of: frozen values, the ids that name them, and numbers in words.

Nearly every record, request and finding of the platform is a frozen value. What should change is made anew,
by `dataclasses.replace`. An id is a prefix that says what it names and 26 random characters (128 bits, base
32).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from reprlib import recursive_repr
from typing import Any, NoReturn, TypeVar, dataclass_transform

_Kind = TypeVar("_Kind")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(kind: type[_Kind]) -> type[_Kind]:
    """Makes a class a frozen dataclass with slots. Its fields are given by name, so that a call says which
    is which.
    """
    return _made(kind, kw_only=True)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def brief_value_class(kind: type[_Kind]) -> type[_Kind]:
    """Makes a value as `value_class` does. Its few fields may be given in order."""
    return _made(kind, kw_only=False)


def _made(kind: type[_Kind], *, kw_only: bool) -> type[_Kind]:
    """Lets the standard library find the fields, and adds what values do. The library would compile six
    functions for each of some five hundred kinds, a fifth of the server's start. Here all kinds share what
    need not be quick; the rest is compiled when it is first called, which for most kinds is never.
    """
    # Where there is no docstring the library would write the signature. That takes as long as all of this.
    kind.__doc__ = kind.__doc__ or kind.__name__
    # And it would read each annotation three times for a mark that hardly any has.
    texts = get_annotations(kind)
    plain = {name: text for name, text in texts.items() if not _MARKS.search(str(text))}
    kind.__annotations__ = texts | dict.fromkeys(plain, object)
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(kind)
    made.__annotations__ = texts
    for name, text in plain.items():
        made.__dataclass_fields__[name].type = text  # type: ignore[attr-defined]
    methods = {name: _compiled_when_called(made, name) for name in _SOURCES}
    for name, method in (methods | _SHARED).items():
        if kind.__dict__.get(name) is None:
            setattr(made, name, method)
    return made


_MARKS = re.compile("KW_ONLY|ClassVar|InitVar")


def _compiled_when_called(kind: type[Any], name: str) -> Callable[..., Any]:
    def method(self: object, *given: Any, **named: Any) -> Any:
        known: dict[str, Any] = {}
        exec(_SOURCES[name](kind, known), known)
        compiled = known[name]
        compiled.__qualname__ = f"{kind.__qualname__}.{name}"
        setattr(kind, name, compiled)
        return compiled(self, *given, **named)

    return method


def _init_source(kind: type[Any], known: dict[str, Any]) -> str:
    """Writes `__init__`, which sets the fields by their slots: nothing else can. What it speaks of is put
    into `known`.
    """
    parameters, steps = ["self"], []
    for each in sorted(fields(kind), key=lambda each: bool(each.kw_only)):
        name, factory = each.name, each.default_factory
        known |= {f"_set_{name}": getattr(kind, name).__set__, f"_default_{name}": each.default}
        if each.kw_only and "*" not in parameters:
            parameters.append("*")
        if factory is MISSING:
            parameters.append(name if each.default is MISSING else f"{name}=_default_{name}")
            steps.append(f"_set_{name}(self, {name})")
        else:
            known[f"_new_{name}"] = factory
            parameters.append(f"{name}=_default_{name}")
            steps.append(f"_set_{name}(self, _new_{name}() if {name} is _default_{name} else {name})")
    if hasattr(kind, "__post_init__"):
        steps.append("self.__post_init__()")
    return f"def __init__({', '.join(parameters)}):\n " + "\n ".join(steps or ["pass"])


def _eq_source(kind: type[Any], _: dict[str, Any]) -> str:
    return (
        "def __eq__(self, other):\n"
        " if other.__class__ is self.__class__:\n"
        f"  return {_compared(kind, 'self')} == {_compared(kind, 'other')}\n"
        " return NotImplemented"
    )


def _hash_source(kind: type[Any], _: dict[str, Any]) -> str:
    return f"def __hash__(self): return hash({_compared(kind, 'self')})"


def _compared(kind: type[Any], one: str) -> str:
    return "(" + "".join(f"{one}.{each.name}, " for each in fields(kind) if each.compare) + ")"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Gives a copy what the slots held: `copy` and `pickle` would set attributes."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)


_SOURCES = {"__init__": _init_source, "__eq__": _eq_source, "__hash__": _hash_source}
_SHARED: dict[str, Callable[..., Any]] = {
    "__repr__": _repr,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__setstate__": _set_state,
}


_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"
# Each character of it for eight of all bytes.
_LETTERS = _ALPHABET * 8
_SANDBOX_ID = re.compile(r"^sbx_[0-9a-hjkmnp-tv-z]{26}$")
_VOLUME_ID = re.compile(r"^vol_[0-9a-hjkmnp-tv-z]{26}$")
_KEPT_ID = re.compile(r"^(?!sbx|vol)[a-z]{3}_[0-9a-hjkmnp-tv-z]{26}$")


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_bytes(26).translate(_LETTERS).decode()}"


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


def counted(count: int, what: str) -> str:
    """Says how many of something there are: `1 sandbox`, `2 sandboxes`."""
    if count == 1:
        return f"{count} {what}"
    return f"{count} {what}{'es' if what.endswith('x') else 's'}"

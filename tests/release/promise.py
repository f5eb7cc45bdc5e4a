"""What `/v1` promises to callers, as a comparison of two documents: it grows, and takes nothing away.

Compared are operations, their parameters, bodies and answers, schema by schema. What may be sent and what is
answered may become more, and never less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis.strategies import from_regex

Json = dict[str, Any]
# Keywords that bound what may be sent, and how a bound gets tighter.
_UPPER = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
_LOWER = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")


def broken(before: Json, now: Json, today: date) -> list[str]:
    """One line for each promise of the document before that the one now does not keep."""
    return sorted(set(_Comparison(before, now, today).lines()))


class _Comparison:
    def __init__(self, before: Json, now: Json, today: date) -> None:
        self._before, self._now, self._today = before, now, today
        self._seen: set[tuple[str, str, bool]] = set()

    def lines(self) -> Iterator[str]:
        later = _operations(self._now)
        for name, operation in _operations(self._before).items():
            if name in later:
                yield from self._operation(name, operation, later[name])
            elif not self._is_over(operation):
                yield f"{name}: it is gone"

    def _is_over(self, operation: Json) -> bool:
        """It was deprecated, and the day it said it would go has come."""
        sunset = operation.get("x-sunset")
        return bool(operation.get("deprecated")) and sunset is not None and sunset <= self._today.isoformat()

    def _operation(self, name: str, before: Json, now: Json) -> Iterator[str]:
        if before.get("operationId") != now.get("operationId"):
            yield f"{name}: operationId {before.get('operationId')} is now {now.get('operationId')}"
        yield from self._parameters(name, _parameters(before), _parameters(now))
        yield from self._body(name, before.get("requestBody"), now.get("requestBody"))
        for status, answer in before["responses"].items():
            if not status.startswith("2"):
                continue
            if status not in now["responses"]:
                yield f"{name}: it answers {status} no more"
                continue
            later = now["responses"][status].get("content", {})
            for media, content in answer.get("content", {}).items():
                if media not in later:
                    yield f"{name}: {status} is no longer {media}"
                else:
                    where = f"{name}: answer"
                    yield from self._schema(where, _schema(content), _schema(later[media]), sent=False)

    def _parameters(self, name: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
        for key, parameter in before.items():
            if key not in now:
                yield f"{name}: parameter {key} is gone"
                continue
            if now[key].get("required") and not parameter.get("required"):
                yield f"{name}: parameter {key} is required now"
            yield from self._schema(f"{name}: {key}", _schema(parameter), _schema(now[key]), sent=True)
        for key in now.keys() - before.keys():
            if now[key].get("required"):
                yield f"{name}: parameter {key} is new and required"

    def _body(self, name: str, before: Json | None, now: Json | None) -> Iterator[str]:
        if now is not None and now.get("required") and not (before or {}).get("required"):
            yield f"{name}: a body is required now"
        if before is None:
            return
        if now is None:
            yield f"{name}: it takes no body any more"
            return
        for media, content in before["content"].items():
            if media not in now["content"]:
                yield f"{name}: a body of {media} is no longer taken"
            else:
                where = f"{name}: body"
                yield from self._schema(where, _schema(content), _schema(now["content"][media]), sent=True)

    # -- schemas ------------------------------------------------------------------------------------------

    def _schema(self, where: str, before: Json, now: Json, *, sent: bool) -> Iterator[str]:
        if "$ref" in before and "$ref" in now:
            pair = (before["$ref"], now["$ref"], sent)
            if pair in self._seen:
                return
            self._seen.add(pair)
            where = before["$ref"].rsplit("/", 1)[1] + (" (sent)" if sent else "")
        before, now = _resolve(before, self._before), _resolve(now, self._now)
        yield from _types(where, before, now, sent=sent)
        yield from _words(where, before, now)
        if sent:
            yield from _bounds(where, before, now)
        yield from self._fields(where, before, now, sent=sent)
        for key in ("items", "additionalProperties"):
            if isinstance(before.get(key), dict) and isinstance(now.get(key), dict):
                yield from self._schema(f"{where}[]", before[key], now[key], sent=sent)
        yield from self._choices(where, before, now, sent=sent)

    def _fields(self, where: str, before: Json, now: Json, *, sent: bool) -> Iterator[str]:
        was, is_now = before.get("properties", {}), now.get("properties", {})
        for name, field in was.items():
            if name not in is_now:
                yield f"{where}.{name}: it is gone"
            else:
                yield from self._schema(f"{where}.{name}", field, is_now[name], sent=sent)
        needed, needed_now = set(before.get("required", ())), set(now.get("required", ()))
        if sent:
            yield from (f"{where}.{name}: it is required now" for name in sorted(needed_now - needed))
            if before.get("additionalProperties") is not False and now.get("additionalProperties") is False:
                yield f"{where}: other fields are refused now"
        else:
            yield from (f"{where}.{name}: it may be missing now" for name in sorted(needed - needed_now))

    def _choices(self, where: str, before: Json, now: Json, *, sent: bool) -> Iterator[str]:
        """Of `anyOf` and `oneOf` each choice keeps its place: the first of its type."""
        left = list(_choices(now))
        for choice in _choices(before):
            like = [one for one in left if self._kind(one, self._now) == self._kind(choice, self._before)]
            if like:
                left.remove(like[0])
                yield from self._schema(where, choice, like[0], sent=sent)
            elif sent:
                yield f"{where}: {self._kind(choice, self._before)} is no longer taken"
        if not sent and _choices(before):
            yield from (f"{where}: it may be {self._kind(one, self._now)} now" for one in left)

    def _kind(self, schema: Json, document: Json) -> str:
        """A choice in a word: its name, or its type."""
        if "$ref" in schema:
            return str(schema["$ref"].rsplit("/", 1)[1])
        return str(_resolve(schema, document).get("type", "anything"))


def _operations(document: Json) -> dict[str, Json]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def _parameters(operation: Json) -> dict[str, Json]:
    return {f"{one['in']} {one['name']}": one for one in operation.get("parameters", ())}


def _schema(holder: Json) -> Json:
    found: Json = holder.get("schema", {})
    return found


def _resolve(schema: Json, document: Json) -> Json:
    while "$ref" in schema:
        kind, name = schema["$ref"].removeprefix("#/components/").split("/", 1)
        components = document["components"]
        # As it is served, or as it is frozen: a line for each.
        schema = components[f"{kind}/{name}"] if f"{kind}/{name}" in components else components[kind][name]
    return schema


def _choices(schema: Json) -> list[Json]:
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


def _types(where: str, before: Json, now: Json, *, sent: bool) -> Iterator[str]:
    was, is_now = _kinds(before), _kinds(now)
    if was is None and is_now is None:
        return
    if sent and is_now is not None and (was is None or not was <= is_now):
        yield f"{where}: {_shown(was)} is {_shown(is_now)} now"
    if not sent and was is not None and (is_now is None or not is_now <= was):
        yield f"{where}: {_shown(was)} is {_shown(is_now)} now"


def _kinds(schema: Json) -> set[str] | None:
    """None: anything, or a choice that is compared by itself."""
    found = schema.get("type")
    if found is None:
        return None
    kinds = set(found) if isinstance(found, list) else {found}
    # A whole number is a number.
    return kinds | {"integer"} if "number" in kinds else kinds


def _shown(kinds: set[str] | None) -> str:
    return "anything" if kinds is None else " or ".join(sorted(kinds))


def _words(where: str, before: Json, now: Json) -> Iterator[str]:
    """Of a list of words none goes, neither of those to send nor of those in answers."""
    was = before.get("enum", [before["const"]] if "const" in before else None)
    is_now = now.get("enum", [now["const"]] if "const" in now else None)
    if was is None and is_now is not None:
        yield f"{where}: it was any word, and is one of a list now"
    elif was is not None and is_now is not None:
        yield from (f"{where}: {word!r} is gone" for word in was if word not in is_now)


def _bounds(where: str, before: Json, now: Json) -> Iterator[str]:
    if "pattern" in before and _takes_all(before["pattern"], now.get("pattern", ""), now.get("maxLength")):
        # Whatever fitted the pattern before fits it now, and the length that bounds it.
        now = {**now, "pattern": before["pattern"]}
        now["maxLength"] = max(now.get("maxLength", 0), before.get("maxLength", 0))
        before = {"maxLength": now["maxLength"], **before}
    for key in _UPPER:
        if key in now and (key not in before or now[key] < before[key]):
            yield f"{where}: {key} is {now[key]} now"
    for key in _LOWER:
        if key in now and (key not in before or now[key] > before[key]):
            yield f"{where}: {key} is {now[key]} now"
    for key in ("pattern", "format", "multipleOf", "uniqueItems"):
        if key in now and now[key] != before.get(key):
            yield f"{where}: {key} is {now[key]} now"


@cache
def _takes_all(before: str, now: str, longest: int | None) -> bool:
    """Tells whether a pattern takes what another one takes: tried with texts of many shapes."""

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(from_regex(before, fullmatch=True))
    def check(text: str) -> None:
        assert re.search(now, text)
        assert longest is None or len(text.rstrip("\n")) <= longest

    try:
        check()
    except AssertionError:
        return False
    return True

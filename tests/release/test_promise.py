"""`/v1` grows only by addition, and error codes keep their meaning (docs/reference/compatibility.md)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from tests.release.frozen import CODES, DOCUMENT, codes, document
from tests.release.promise import broken

TODAY = date(2026, 11, 17)
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return found


def test_nothing_that_was_promised_is_taken_away(frozen: dict[str, Any]) -> None:
    assert broken(frozen, document(), date.today()) == []


def test_no_error_code_is_gone_or_has_another_status() -> None:
    now = codes()
    promised = json.loads(CODES.read_text())
    assert {code: now.get(code) for code in promised} == promised
    assert set(now) == set(promised), "`make freeze` takes new codes over"


# A document in small: an operation with a query, a body and an answer.
SMALL: dict[str, Any] = {
    "paths": {
        "/v1/things": {
            "post": {
                "operationId": "makeThing",
                "parameters": [{"in": "query", "name": "dry", "schema": {"type": "boolean"}}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Wanted"}}},
                },
                "responses": {
                    "200": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}
                    },
                    "404": {},
                },
            }
        }
    },
    "components": {
        "schemas": {
            "Wanted": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 20},
                    "code": {"type": "string", "pattern": "^x[0-9]{3}$"},
                    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "kind": {"enum": ["small", "large"], "type": "string"},
                },
                "required": ["name"],
            },
            "Thing": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "state": {"enum": ["new", "old"], "type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["id", "state"],
            },
        }
    },
}


def operation(of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = of["paths"]["/v1/things"]["post"]
    return found


def fields(of: dict[str, Any], schema: str) -> dict[str, Any]:
    found: dict[str, Any] = of["components"]["schemas"][schema]["properties"]
    return found


def required(of: dict[str, Any], schema: str) -> list[str]:
    found: list[str] = of["components"]["schemas"][schema]["required"]
    return found


BREAKING: dict[str, Change] = {
    "a path is gone": lambda d: d["paths"].clear(),
    "a method is gone": lambda d: d["paths"]["/v1/things"].pop("post"),
    "an operation has another name": lambda d: operation(d).update(operationId="createThing"),
    "a parameter is gone": lambda d: operation(d)["parameters"].clear(),
    "a parameter is required": lambda d: operation(d)["parameters"][0].update(required=True),
    "a new parameter is required": lambda d: operation(d)["parameters"].append(
        {"in": "query", "name": "who", "required": True, "schema": {}}
    ),
    "no body is taken": lambda d: operation(d).pop("requestBody"),
    "a success is gone": lambda d: operation(d)["responses"].pop("200"),
    "an answer has another form": lambda d: operation(d)["responses"]["200"].update(
        content={"text/plain": {}}
    ),
    "a field of a body is gone": lambda d: fields(d, "Wanted").pop("kind"),
    "a field of a body is required": lambda d: required(d, "Wanted").append("kind"),
    "a word to send is gone": lambda d: fields(d, "Wanted")["kind"]["enum"].remove("small"),
    "a bound is tighter": lambda d: fields(d, "Wanted")["name"].update(maxLength=10),
    "a bound is new": lambda d: fields(d, "Wanted")["name"].update(minLength=3),
    "a pattern is new": lambda d: fields(d, "Wanted")["name"].update(pattern="^a"),
    "a pattern is narrower": lambda d: fields(d, "Wanted")["code"].update(pattern="^x[0-4]{3}$"),
    "a length is too short for a pattern": lambda d: fields(d, "Wanted")["code"].update(maxLength=3),
    "a type to send is narrower": lambda d: fields(d, "Wanted")["name"].update(type="integer"),
    "a choice to send is gone": lambda d: fields(d, "Wanted")["size"]["anyOf"].pop(),
    "other fields are refused": lambda d: d["components"]["schemas"]["Wanted"].update(
        additionalProperties=False
    ),
    "a field of an answer is gone": lambda d: fields(d, "Thing").pop("note"),
    "a field of an answer may be missing": lambda d: required(d, "Thing").remove("state"),
    "a word of an answer is gone": lambda d: fields(d, "Thing")["state"]["enum"].remove("old"),
    "an answer has another type": lambda d: fields(d, "Thing")["id"].update(type="integer"),
    "an answer may be something new": lambda d: fields(d, "Thing")["note"]["anyOf"].append(
        {"type": "integer"}
    ),
}
ADDING: dict[str, Change] = {
    "nothing": lambda d: None,
    "an operation": lambda d: d["paths"].update({"/v1/others": {"get": {"responses": {}}}}),
    "a parameter": lambda d: operation(d)["parameters"].append({"in": "query", "name": "who", "schema": {}}),
    "a field of a body": lambda d: fields(d, "Wanted").update(colour={"type": "string"}),
    "a field of a body that need not be given": lambda d: required(d, "Wanted").remove("name"),
    "a word to send": lambda d: fields(d, "Wanted")["kind"]["enum"].append("huge"),
    "a wider bound": lambda d: fields(d, "Wanted")["name"].update(maxLength=30),
    "a wider pattern": lambda d: fields(d, "Wanted")["code"].update(
        pattern="^x[0-9]{1,3}$|^[a-z]+$", maxLength=63
    ),
    "a choice to send": lambda d: fields(d, "Wanted")["size"]["anyOf"].append({"type": "string"}),
    "a field of an answer": lambda d: fields(d, "Thing").update(colour={"type": "string"}),
    "a word of an answer": lambda d: fields(d, "Thing")["state"]["enum"].append("lost"),
    "a refusal": lambda d: operation(d)["responses"].update({"409": {}}),
    "words for people": lambda d: operation(d).update(summary="Make one"),
    "a deprecation": lambda d: operation(d).update({"deprecated": True, "x-sunset": "2027-11-17"}),
}


@pytest.mark.parametrize("change", BREAKING.values(), ids=list(BREAKING))
def test_a_promise_is_broken_when(change: Change) -> None:
    now = copy.deepcopy(SMALL)
    change(now)
    assert broken(SMALL, now, TODAY)


@pytest.mark.parametrize("change", ADDING.values(), ids=list(ADDING))
def test_no_promise_is_broken_by_adding(change: Change) -> None:
    now = copy.deepcopy(SMALL)
    change(now)
    assert broken(SMALL, now, TODAY) == []


@pytest.mark.parametrize(("sunset", "may_go"), [("2026-11-17", True), ("2026-11-18", False), (None, False)])
def test_a_deprecated_operation_may_go_on_the_day_it_named(sunset: str | None, may_go: bool) -> None:
    before = copy.deepcopy(SMALL)
    operation(before).update({"deprecated": True, "x-sunset": sunset})
    now = copy.deepcopy(before)
    now["paths"].clear()
    assert (broken(before, now, TODAY) == []) is may_go

"""What is wrong with a request's JSON is said with its place, what is allowed there, and an example."""

from __future__ import annotations

import pytest

from sandboxer.wire.operations import table
from sandboxer.wire.operations.declaration import Json
from tests.support.http.served import Served

WORDS = (
    "pattern",
    "regex",
    "pydantic",
    "Input ",
    "String ",
    "Value error",
    "validation",
    "[0-9",
    "^",
    "{26}",
)


async def refused(served: Served, content: bytes) -> dict[str, object]:
    headers = {"content-type": "application/json"}
    answer = await served.client.send("POST", "/v1/sandboxes", content=content, headers=headers)
    assert answer.status_code == 422, answer.text
    found: dict[str, object] = answer.json()
    return found


@pytest.mark.parametrize(
    ("content", "line", "column", "why"),
    [
        (b'{"name": "x",}', 1, 14, "a name in double quotes is missing"),
        (b'{\n  "name": "x"\n  "ttl": "1h"\n}', 3, 3, "a comma is missing"),
        (b'{"name" "x"}', 1, 9, "a colon is missing"),
        (b"{'name': 1}", 1, 2, "a name in double quotes is missing"),
        (b'{"name": }', 1, 10, "a value is missing"),
        (b'{"name": "x', 1, 10, "has no end"),
        (b"{} {}", 1, 4, "has ended before"),
        (b'\n{"\xc3\xa4": "\xff"}', 2, 8, "no UTF-8"),
    ],
)
async def test_json_that_breaks_off_says_where_and_what(
    served: Served, content: bytes, line: int, column: int, why: str
) -> None:
    found = await refused(served, content)
    assert (found["field"], found["line"], found["column"]) == ("body", line, column), found
    assert why in str(found["detail"])
    assert f"line {line}, column {column}" in str(found["detail"])


@pytest.mark.parametrize(
    ("content", "field", "why"),
    [
        (b'{"tll": "1h"}', "tll", "did you mean ttl?"),
        (b'{"ttl": "soon"}', "ttl", "as in 30s"),
        (b'{"ttl": 5}', "ttl", "it should be text, as in 30s"),
        (b'{"network": "lan"}', "network", "as in packages"),
        (b'{"trust": "full"}', "trust", "it should be 'zero' or 'semi'"),
        (b'{"resources": {"pids": 1}}', "resources.pids", "at least 8"),
        (b'{"resources": {"memory_mb": "lots"}}', "resources.memory_mb", "a whole number"),
        (b'{"volumes": [{"path": "/x"}]}', "volumes.0.volume", "it is missing"),
        (b'{"env": []}', "env", "an object"),
        (b"[]", "body", "an object"),
    ],
)
async def test_a_wrong_field_is_named_with_what_is_allowed(
    served: Served, content: bytes, field: str, why: str
) -> None:
    found = await refused(served, content)
    assert found["field"] == field, found
    assert why in str(found["detail"]), found["detail"]
    assert not [word for word in WORDS if word in str(found["detail"])]


async def test_no_answer_to_a_wrong_body_has_words_of_a_library(served: Served) -> None:
    """Every field of every body is given a text, a number, a list and nothing."""
    for operation in table.OPERATIONS:
        if not isinstance(operation.body, Json) or "{" in operation.path:
            continue
        for value in ("\x00?", -1, [], {"?": 1}, None):
            body = dict.fromkeys(operation.body.model.model_fields, value)
            answer = await served.client.send(operation.method, operation.path, body={**body, "nosuch": 1})
            said = [str(answer.json()["detail"]), *(one["why"] for one in answer.json().get("errors", ()))]
            bad = [(text, word) for text in said for word in WORDS if word in text]
            assert not bad, (operation.id, bad)

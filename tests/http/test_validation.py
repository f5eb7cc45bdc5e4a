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
        (b'{"ttl": "soon"}', "ttl", "how long it lives once ready, as 30s, 15m, 4h or 2d"),
        (b'{"ttl": 5}', "ttl", "it should be text, as in 30s"),
        (b'{"network": "lan"}', "network", "none, packages, open, or allow: and hosts"),
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


async def test_a_body_that_is_not_called_json_is_told_how_to_send_it(served: Served) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await served.client.send("POST", "/v1/sandboxes", content=b'{"name": "x"}', headers=form)
    assert (answer.status_code, answer.json()["why"]) == (422, "it did not come as JSON")
    assert answer.json()["next_step"] == "Send content-type: application/json; curl does with --json."


@pytest.mark.parametrize("path", ["/v1/sandbox", "/sandboxes", "/v1/sandboxes/dev/nosuch"])
async def test_a_path_with_a_mistake_is_told_the_noun_it_may_mean(served: Served, path: str) -> None:
    answer = await served.client.get(path)
    assert answer.json()["detail"] == "There is nothing at this path. Did you mean /v1/sandboxes?"
    other = await served.client.send("PUT", "/v1/sandboxes")
    assert (other.status_code, other.json()["detail"]) == (405, "This path takes GET, POST, not PUT.")


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

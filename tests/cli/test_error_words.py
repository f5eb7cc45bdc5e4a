"""Errors speak the words of the door that they come through: commands, calls of the client, or routes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxer
from sandboxer.edges.cli.main import VERBS, load
from sandboxer.edges.cli.output import error_facts, print_error
from sandboxer.edges.http.problems import FRAMEWORK, document
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, Refused, SandboxerError
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.errors import api_error
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.code import Session
from sandboxer.wire.next_steps import ACTS, LISTS, OPTIONS, STEPS, Door, in_words_of
from sandboxer.wire.operations import table

EVERYWHERE = ("regex", "pydantic", "mended on your side", "corrupted", "traceback")
_HTTP = (
    "/v1/",
    "GET ",
    "POST ",
    "PUT ",
    "PATCH ",
    "DELETE ",
    "Idempotency-Key",
    "header",
    "x-request-id",
    "route",
)
FORBIDDEN = {
    Door.HTTP: EVERYWHERE,
    Door.CLI: (*EVERYWHERE, *_HTTP, "client.", "idempotency_key", "the named field", "retry_after_s"),
    Door.SDK: (*EVERYWHERE, *_HTTP, "--json", "--state-dir"),
}
# Read only by who speaks HTTP by hand: how requests are signed, and the doors of ports.
BY_HAND = ("identity/", "edges/", "payments/stacks", "store/idempotency", "work/execute/one_shot")


def kinds() -> list[type[SandboxerError]]:
    found = [SandboxerError]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one.__module__ == "sandboxer.kernel.errors"]
    return found


def said(error: SandboxerError, door: Door) -> list[str]:
    """Message and next step, as they are at a door."""
    problem: dict[str, Any] = document(error, "req_1")
    if door is Door.HTTP:
        return [problem["detail"], problem["next_step"]]
    answered = api_error(problem["status"], problem)
    if door is Door.SDK:
        return [str(answered), answered.next_step, *answered.__notes__]
    facts = error_facts(answered)
    return [facts["message"], facts["next_step"]]


@pytest.mark.parametrize("door", Door)
def test_every_error_says_what_is_wrong_and_what_to_do_at_every_door(door: Door) -> None:
    facts = {
        "why": "it is so",
        "id": "sbx_1",
        "what": "sandbox",
        "field": "ttl",
        "retry_after_s": 3,
        "limit": 1,
    }
    for kind in kinds():
        for error in (kind(**facts), kind()):
            for text in said(error, door):
                assert text.strip(), (kind, door)
                bad = [word for word in FORBIDDEN[door] if word in text]
                assert not bad, (kind.__name__, text, bad)


def test_what_is_not_found_is_listed_by_a_command() -> None:
    for noun, route in LISTS.items():
        error = NotFound(what=noun, id="x")
        assert said(error, Door.HTTP)[1] == f"See what there is: {route}."
        assert said(error, Door.CLI)[1].startswith("See what there is: sandboxer ")
        assert said(error, Door.SDK)[1].startswith("See what there is: client.")


def test_every_act_is_one_at_all_doors() -> None:
    routes = {f"{one.method} {one.path}" for one in table.OPERATIONS} | {"GET /openapi.json"}
    assert set(ACTS) <= routes
    assert set(LISTS.values()) <= set(ACTS)
    usual = {kind.code: kind.next_step for kind in kinds()}
    assert {code: words.http for code, words in STEPS.items()}.items() <= usual.items()
    with Sandboxer(url="http://127.0.0.1:1", public_key=NOBODY, secret_key=NOBODY) as client:
        for route, words in ACTS.items():
            assert command_of(words.cli.split()[1:]), words.cli
            assert callable(reach(client, ast.parse(words.sdk.format("sbx_1"), mode="eval").body)), route


def command_of(words: list[str]) -> bool:
    """Whether the command line has it, with the options that it names."""
    if words == ["--help"]:
        return True
    if words[0] not in VERBS:
        return False
    command: Any = load(words[0])
    rest = words[1:]
    if VERBS[words[0]].is_group:
        command, rest = command.commands.get(rest[0]), rest[1:]
    known = {option for one in getattr(command, "params", ()) for option in one.opts}
    return command is not None and all(word in known for word in rest if word.startswith("-"))


def reach(client: Sandboxer, node: ast.expr) -> object:
    """What an expression of the client means, without calling anything that asks the platform."""
    match node:
        case ast.Name(id="client"):
            return client
        case ast.Name(id="help"):
            return help
        case ast.Attribute(value=ast.Call(func=ast.Attribute(attr="get")), attr=name):
            return getattr(Session, name)
        case ast.Attribute(value=value, attr=name):
            return getattr(reach(client, value), name)
        case ast.Call(func=ast.Attribute(attr="sandbox")):
            return client.sandbox("sbx_1")
        case ast.Call(func=function):
            return reach(client, function)
    raise AssertionError(ast.dump(node))


def test_no_hint_or_message_leaves_a_route_on_the_command_line() -> None:
    bad = []
    for path, text in [*written(), *((Path("problems"), words) for _, words in FRAMEWORK.values())]:
        if re.search(r"/v1/|\b(GET|POST|PUT|PATCH|DELETE) ", in_words_of(Door.CLI, text)):
            bad.append(f"{path}: {text}")
    assert not bad, "\n".join(bad)


def written() -> Iterator[tuple[Path, str]]:
    """Every `hint`, `why` and `next_step` that is written down for a caller."""
    root = Path(sandboxer.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if str(name).startswith(BY_HAND):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "why", "next_step"):
                yield from ((name, text) for text in texts(node.value))


def texts(node: ast.expr) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "x" for p in one.values)  # type: ignore[misc]
        elif (
            isinstance(one, ast.Constant)
            and isinstance(one.value, str)
            and not isinstance(node, ast.JoinedStr)
        ):
            yield one.value


def test_a_person_sees_a_sentence_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    problem = document(NotFound(what="volume", id="data"), "req_1")
    print_error(api_error(404, problem), is_json=False)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown == "error [not_found] No such volume: data. See what there is: sandboxer volume list."


def test_no_sentence_on_the_command_line_begins_with_the_kind_of_error() -> None:
    for error in (
        Conflict(why="data is in use"),
        Refused(why="data is in use"),
        InvalidRequest(field="volume", why="data is in use"),
    ):
        for seen in (error, api_error(409, document(error, "req_1"))):
            assert error_facts(seen)["message"].removeprefix("volume: ") == "data is in use"


def test_a_size_that_is_refused_is_named_as_it_was_given() -> None:
    error = InvalidRequest(field="resources.memory_mb", why="101376 MB is more than it allows (16384 MB)")
    assert said(error, Door.CLI)[0].startswith("--memory: 101376 MB")
    assert said(error, Door.SDK)[0].startswith("Invalid resources.memory_mb:")
    options = {option for param in load("create").params for option in param.opts}
    assert set(OPTIONS.values()) <= options

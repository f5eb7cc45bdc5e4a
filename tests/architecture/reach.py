"""Which operations the client's methods send, and which the command line reaches through them; by syntax.

A method of the client reaches what it builds a call for, itself or by a method of its own class. A verb of
the command line reaches what the methods reach that it names: `platform.volumes.create`, `Sandbox.freeze`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from sandboxer.sdk.sync import client, sandbox
from sandboxer.wire.operations.declaration import AnyOperation

SOURCE = Path(__file__).parents[2] / "src" / "sandboxer"
# Attributes of a client and of a sandbox, and the class that each is.
NOUNS = {name: place.partition(":")[2] for name, place in {**client.NOUNS, **sandbox.NOUNS}.items()}
# `sandbox.secrets` and `client.secrets`, `sandbox.egress` and `client.egress` are two classes each.
TWINS = {"secrets": ("Secrets", "SandboxSecrets"), "egress": ("Egress", "AccountEgress")}
# How the command line calls what it holds.
HELD = {"platform": "Sandboxer", "sandbox": "Sandbox", "session": "Session", "made": "Session"}


def builder_of(operation: AnyOperation) -> str:
    return re.sub(r"(?=[A-Z])", "_", operation.id).lower().lstrip("_")


@cache
def sent_by_the_client() -> Mapping[tuple[str, str], frozenset[str]]:
    """Builders that a method of a class calls."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for path in sorted((SOURCE / "sdk" / "sync").glob("*.py")):
        for kind in ast.parse(path.read_text()).body:
            if isinstance(kind, ast.ClassDef):
                methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef)}
                for name in methods:
                    found[kind.name, name] = frozenset(_builders(name, methods, set()))
    return found


def _builders(name: str, methods: Mapping[str, ast.FunctionDef], seen: set[str]) -> Iterator[str]:
    if name in seen or name not in methods:
        return
    seen.add(name)
    for node in ast.walk(methods[name]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "self":
                yield from _builders(node.attr, methods, seen)
            else:
                yield node.attr


@cache
def reached_by_the_command_line() -> frozenset[str]:
    reached: set[str] = set()
    for path in sorted((SOURCE / "edges" / "cli").rglob("*.py")):
        tree = ast.parse(path.read_text())
        held = {**HELD, **_annotated(tree)}
        given = _given(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                for kind in _kinds(node.value, held, given):
                    reached |= sent_by_the_client().get((kind, node.attr), frozenset())
    return frozenset(reached)


def _annotated(tree: ast.Module) -> dict[str, str]:
    """Names of arguments that are annotated with a class of the client."""
    classes = {kind for kind, _ in sent_by_the_client()}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        kind = node.annotation if isinstance(node, ast.arg) else None
        if isinstance(node, ast.arg) and isinstance(kind, ast.Name) and kind.id in classes:
            found[node.arg] = kind.id
    return found


def _given(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """What functions of the module say that they return."""
    return {
        one.name: tuple(name.id for name in ast.walk(one.returns) if isinstance(name, ast.Name))
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and one.returns is not None
    }


def _kinds(node: ast.expr, held: Mapping[str, str], given: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The classes that an expression may be of."""
    if isinstance(node, ast.Attribute):
        return TWINS.get(node.attr, (NOUNS[node.attr],) if node.attr in NOUNS else ())
    if isinstance(node, ast.Name):
        return (held.get(node.id, node.id),)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return given.get(node.func.id, ())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        made = {"sandbox": "Sandbox", "create": "Sandbox", "get": "Sandbox", "start": "Session"}
        return (made[node.func.attr], "Session") if node.func.attr in made else ()
    return ()


def has_method(operation: AnyOperation) -> bool:
    return any(builder_of(operation) in builders for builders in sent_by_the_client().values())


def has_verb(operation: AnyOperation) -> bool:
    return builder_of(operation) in reached_by_the_command_line()


def statements(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every statement at any depth: none is within an expression, and most of a tree is expressions."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            within = getattr(node, part, ())
            yield from statements(within if isinstance(within, list) else ())

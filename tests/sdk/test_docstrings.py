"""Everything public of the client says what it does; the reference pages are made of that."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator

import pytest

from sandboxer import sdk
from sandboxer.sdk import aio, sync

PLAIN = ("call", "confirmation", "contexts", "credentials", "errors", "payers", "webhooks")
# How the asyncio and the blocking client carry calls is none of a caller's business.
INNER = {"native", "line"}
# "Returns …", "A snapshot is …", "`more` is …"; a bare noun phrase says nothing of what happens.
METHOD = re.compile(r"\.(aio|sync)\.\w+\.[A-Z]\w+\.")
VERB = re.compile(r"\b(\w+s|may|can|could|did|must|will|was|were|asked|answered|said)\b")


def modules() -> Iterator[str]:
    yield from (f"{sdk.__name__}.{name}" for name in PLAIN)
    for package in (aio, sync):
        for found in pkgutil.iter_modules(package.__path__):
            if found.name not in INNER:
                yield f"{package.__name__}.{found.name}"


def public() -> Iterator[tuple[str, str | None]]:
    """Every public class, function and method that is written in these modules, and its docstring."""
    for place in modules():
        module = importlib.import_module(place)
        for name, thing in vars(module).items():
            is_ours = getattr(thing, "__module__", "") == place and not name.startswith("_")
            if not is_ours or not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            yield f"{place}.{name}", thing.__doc__
            for word, member in vars(thing).items() if inspect.isclass(thing) else ():
                of = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if inspect.isfunction(of) and not word.startswith("_"):
                    yield f"{place}.{name}.{word}", of.__doc__


FOUND = dict(public())


def test_everything_public_has_a_sentence() -> None:
    assert len(FOUND) > 400
    assert not [name for name, text in FOUND.items() if not text]
    methods = {name: text or "" for name, text in FOUND.items() if METHOD.search(name)}
    assert not [name for name, text in methods.items() if not VERB.search(text.split("\n\n")[0])]


@pytest.mark.parametrize("name", [name for name, text in FOUND.items() if ">>>" in (text or "")])
def test_an_example_is_python_and_names_methods_that_exist(name: str) -> None:
    for example in doctest.DocTestParser().get_examples(FOUND[name] or ""):
        code = compile(
            example.source, name, "single", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        )
        for call in (node for node in ast.walk(code) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute):
                method = call.func.attr
                assert any(one.endswith(f".{method}") for one in FOUND), method


def test_the_examples_show_the_way_most_callers_take() -> None:
    shown = {name.rpartition(".sync.")[2] for name, text in FOUND.items() if ">>>" in (text or "")}
    first_steps = {"client.Sandboxer.create", "sandbox.Sandbox.exec", "inside.Files.write"}
    first_steps |= {"artifacts.Snapshots.take", "services.Services.create", "platform.Keys.delegate"}
    assert first_steps <= shown

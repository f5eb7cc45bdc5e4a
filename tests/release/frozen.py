"""What was frozen, and the same of a running platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandboxer.edges.http.app import all_bindings
from sandboxer.edges.http.problems import FRAMEWORK, status_of
from sandboxer.edges.http.routes.front import build_document
from sandboxer.kernel.errors import SandboxerError
from tests.release.matrix import Cell, recorded
from tests.support.http.served import Served

HERE = Path(__file__).parent
DOCUMENT = HERE / "openapi.json"
ANSWERS = HERE / "answers.json"
CODES = HERE / "codes.json"


def document() -> dict[str, Any]:
    """The document without a platform: it says the same on each."""
    return build_document(all_bindings())


def codes() -> dict[str, int]:
    """Every code that an error can have, with its status."""
    kinds, found = [SandboxerError], {}
    while kinds:
        kind = kinds.pop()
        if kind.__module__.startswith("sandboxer.edges.cli"):
            # How a command ends; nobody is answered with it.
            continue
        found[kind.code] = status_of(kind())
        kinds += kind.__subclasses__()
    return dict(sorted({**found, **{code: status for status, (code, _) in FRAMEWORK.items()}}.items()))


def written_document(document: dict[str, Any]) -> str:
    """A line for each path and each schema."""

    def lines(items: dict[str, Any]) -> str:
        shown = (
            f"  {json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in sorted(items.items())
        )
        return "{\n" + ",\n".join(shown) + "\n }"

    rest = {name: json.dumps(one, sort_keys=True) for name, one in document.items()}
    rest["paths"] = lines(document["paths"])
    rest["components"] = lines(
        {
            f"{kind}/{name}": one
            for kind, found in document["components"].items()
            for name, one in found.items()
        }
    )
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {text}" for name, text in sorted(rest.items())) + "\n}\n"


def written(answers: dict[str, dict[str, Cell]]) -> str:
    """A line for each cell, so that a change shows as the lines that it changes."""
    lines = []
    for operation, row in sorted(answers.items()):
        cells = ",\n".join(
            f"  {json.dumps(who)}: {json.dumps(cell, sort_keys=True)}" for who, cell in row.items()
        )
        lines.append(f" {json.dumps(operation)}: {{\n{cells}\n }}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


async def answers_of(served: Served) -> dict[str, dict[str, Cell]]:
    return await recorded(served, document())

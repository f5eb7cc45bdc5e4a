"""The tools that models call, for adapters in TypeScript: the table that every adapter and MCP have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from client_document import Document

# Written by scripts/generate-tools, which `make generate` runs before.
TABLE = Path(__file__).resolve().parents[1] / "src" / "sandboxer" / "sdk" / "tools.json"
NOTE = "Written by scripts/generate-clients from src/sandboxer/sdk/tools.json. Do not edit."


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of the one file."""
    known = {one.operation.id for one in document.operations}
    # What is found through another thing takes two requests, which only the client of Python sends so.
    tools = [
        one for one in json.loads(TABLE.read_text()) if one["operation"] in known and "through" not in one
    ]
    lines = "".join(f"  {json.dumps(_tool(one), ensure_ascii=False)},\n" for one in tools)
    head = f'// {NOTE}\n\nimport type {{ Tool }} from "../tools.js";\n\n'
    yield "tools.ts", f"{head}export const TOOLS: readonly Tool[] = [\n{lines}];\n"


def _tool(one: Mapping[str, Any]) -> Mapping[str, Any]:
    said = {name: one[name] for name in ("name", "operation", "offer", "description")}
    marks = {"isUpload": one.get("is_upload"), "isKeyed": one.get("is_keyed")}
    return {**said, **{name: True for name, is_so in marks.items() if is_so}, "parameters": one["schema"]}

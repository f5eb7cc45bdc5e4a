"""The tools that adapters in TypeScript offer to a model: operations with their words as JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from client_document import NOTE, Described, Document, Field, Schema, fields_of, referred

# What a model needs for the whole loop, and which words of each: all that an operation takes would be pages.
OFFERED: Mapping[str, Sequence[str]] = {
    "discover": (),
    "getPricing": (),
    "showMe": (),
    "topUp": ("sats",),
    "createSandbox": ("name", "profile", "image", "network", "ttl", "snapshot", "env"),
    "listSandboxes": ("state", "limit"),
    "getSandbox": ("sandbox_id",),
    "runCommand": ("sandbox_id", "command", "cwd", "env", "stdin", "timeout_s"),
    "executeCode": ("code", "language", "stdin"),
    "listFiles": ("sandbox_id", "path", "depth"),
    "extendTtl": ("sandbox_id", "duration"),
    "takeSnapshot": ("sandbox_id", "name"),
    "listSnapshots": ("limit",),
    "destroySandbox": ("sandbox_id",),
}
# What a model can do with: the platform checks the rest, and says what was wrong.
KEPT = ("type", "enum", "description", "default", "minimum", "maximum")


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of the one file."""
    by_id = {one.operation.id: one for one in document.operations}
    tools = [tool(by_id[name], words, document) for name, words in OFFERED.items()]
    text = json.dumps(tools, indent=2, ensure_ascii=False)
    head = f'// {NOTE}\n\nimport type {{ ToolEntry }} from "../tools.js";\n\n'
    yield "tools.ts", f"{head}export const OPERATIONS: readonly ToolEntry[] = {text};\n"


def tool(one: Described, words: Sequence[str], document: Document) -> Mapping[str, Any]:
    """An operation as a tool: its name, what it is for, and what it takes."""
    fields = [*one.path, *one.query]
    if one.body:
        fields += fields_of(document.models[one.body])
    taken = {field.name: field for field in fields}
    chosen = [taken[word] for word in words]
    return {
        "name": "".join(f"_{c.lower()}" if c.isupper() else c for c in one.operation.id),
        "operation": one.operation.id,
        "description": f"{one.operation.summary}.",
        "parameters": {
            "type": "object",
            "properties": {field.name: _short(field, document) for field in chosen},
            "required": [field.name for field in chosen if field.is_required],
            "additionalProperties": False,
        },
    }


def _short(field: Field, document: Document) -> Mapping[str, Any]:
    said = dict(plain(field.schema, document))
    if field.words:
        said["description"] = field.words
    return said


def plain(schema: Schema, document: Document) -> Mapping[str, Any]:
    """A schema without references, patterns and the word null, which a model leaves out instead."""
    if "$ref" in schema:
        return plain(document.models[referred(schema)], document)
    kinds = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(kinds) == 1:
        return plain({**kinds[0], **{name: schema[name] for name in KEPT if name in schema}}, document)
    said = {name: schema[name] for name in KEPT if schema.get(name) is not None}
    if schema.get("type") == "array":
        said["items"] = plain(schema.get("items", {}), document)
    if schema.get("type") == "object":
        said["additionalProperties"] = {"type": "string"}
    return said

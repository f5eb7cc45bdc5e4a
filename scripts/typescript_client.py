"""The models and the calls of the API in TypeScript: names are as on the wire, lists of words stay open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from client_document import (
    NOTE,
    Described,
    Document,
    Field,
    Schema,
    camel,
    fields_of,
    of_map,
    referred,
)

SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
# What each way to read an answer gives, where no model is named.
GIVEN = {"bytes": "Uint8Array", "events": "void", "none": "void"}


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file."""
    yield "models.ts", models(document)
    yield "calls.ts", calls(document)


def models(document: Document) -> str:
    return f"// {NOTE}\n\n" + "\n".join(model(name, schema) for name, schema in document.models.items())


def model(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"export type {name} = {shown(schema)};\n"
    held = of_map(schema)
    rest = [f"  [fact: string]: {'unknown' if held else 'never'};"] if held else []
    lines = [*_comment(str(schema.get("description", "")), ""), f"export interface {name} {{"]
    return "\n".join([*lines, *members(fields_of(schema)), *rest, "}"]) + "\n"


def members(fields: Iterable[Field]) -> Iterator[str]:
    for one in fields:
        yield from _comment(one.words, "  ")
        yield f"  {_property(one.name)}{'' if one.is_required else '?'}: {shown(one.schema)};"


def shown(schema: Schema, *, ref: str = "") -> str:
    """A schema as a type; `ref` is what stands before the name of a model."""
    if "$ref" in schema:
        return ref + referred(schema)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(shown(one, ref=ref) for one in schema["anyOf"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        words = " | ".join(json.dumps(word) for word in schema["enum"])
        # A newer platform may know more words.
        return f"{words} | (string & {{}})" if schema.get("type") == "string" else words
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{shown(schema.get('items', {}), ref=ref)}>"
    if kind == "object":
        held = of_map(schema)
        return f"Record<string, {shown(held, ref=ref) if held is not None else 'unknown'}>"
    return SIMPLE.get(str(kind), "unknown")


def calls(document: Document) -> str:
    head = (
        f"// {NOTE}\n"
        "// Every operation as a function that makes a `Call`; `Sandboxer.send` carries it.\n\n"
        'import { type Body, type Call, call } from "../call.js";\n'
        'import type * as m from "./models.js";\n\n'
    )
    return head + "\n".join(builder(one, document) for one in document.operations)


def builder(one: Described, document: Document) -> str:
    operation = one.operation
    name, given = operation.id, f"m.{one.answer}" if one.answer else GIVEN[one.kind]
    input_name = camel(name) + "Input"
    is_told = bool(one.path or one.query or one.headers or one.body or one.takes_bytes or one.is_keyed)
    taken = f"asked: {input_name}{'' if _must_say(one, document) else ' = {}'}" if is_told else ""
    return (
        (f"{input_of(one, input_name)}\n" if is_told else "")
        + f"/** {operation.summary}. `{operation.method} {operation.path}` */\n"
        + f"export const {name} = ({taken}): Call<{given}> =>\n"
        + f"  call({facts(one)}, {'asked' if is_told else '{}'});\n"
    )


def input_of(one: Described, name: str) -> str:
    own = [*one.path, *one.query, *one.headers]
    lines = [_with_ref(field) for field in own]
    if one.takes_bytes:
        lines.append("  /** What is sent. */\n  body: Body;")
    if one.is_keyed:
        lines.append("  /** The same key with the same request answers as the first time. */")
        lines.append("  idempotency_key?: string;")
    above = f" extends m.{one.body}" if one.body else ""
    return "\n".join([f"export interface {name}{above} {{", *lines, "}"])


def _with_ref(field: Field) -> str:
    comment = "\n".join(_comment(field.words, "  "))
    mark = "" if field.is_required else "?"
    text = f"  {_property(_told(field.name))}{mark}: {shown(field.schema, ref='m.')};"
    return f"{comment}\n{text}" if comment else text


def facts(one: Described) -> str:
    """What the runtime needs to know of an operation, as an object."""
    operation = one.operation
    said: dict[str, object] = {"id": operation.id, "method": operation.method, "path": operation.path}
    if one.query:
        said["query"] = [field.name for field in one.query]
    headers = {_told(field.name): field.name.lower() for field in one.headers}
    if one.is_keyed:
        headers["idempotency_key"] = "idempotency-key"
    if headers:
        said["headers"] = headers
    if one.body:
        said["sends"] = "json"
    elif one.takes_bytes:
        said["sends"] = operation.body.media_type  # type: ignore[attr-defined]
    if one.kind != "json":
        said["reads"] = one.kind
    if one.also_reads:
        said["also"] = one.also_reads
    if one.is_repeatable:
        said["repeatable"] = True
    if operation.patience_s is not None:
        said["patience_s"] = operation.patience_s
    return "{ " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in said.items()) + " }"


def _must_say(one: Described, document: Document) -> bool:
    fields = [*one.path, *one.query, *one.headers]
    if one.body:
        fields += fields_of(document.models[one.body])
    return one.takes_bytes or any(field.is_required for field in fields)


def _told(name: str) -> str:
    """A header as it is called among the other words: `Last-Event-Id` is `last_event_id`."""
    return name.lower().replace("-", "_")


def _property(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _comment(words: str, indent: str) -> Iterator[str]:
    if words:
        yield f"{indent}/** {' '.join(words.split()).replace('*/', '* /')} */"

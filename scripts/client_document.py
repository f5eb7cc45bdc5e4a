"""What a client in another language has to know of each operation, read from the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandboxer.edges.http.app import all_bindings
from sandboxer.edges.http.routes.front import build_document
from sandboxer.wire.operations import declaration
from sandboxer.wire.operations.declaration import AnyOperation, Idempotency
from sandboxer.wire.operations.table import OPERATIONS

Schema = Mapping[str, Any]
NOTE = "Written by scripts/generate-clients from the OpenAPI document. Do not edit."
# Models that several nouns have, as clients call them; the others lose the module before their name.
RENAMED = {
    "sandboxer__wire__auth__Session": "WalletSession",
    "sandboxer__wire__invoices__Payment": "CoinPayment",
}
IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Field:
    """Something that a request can say, or an answer: its name on the wire, and what it may be."""

    name: str
    schema: Schema
    is_required: bool

    @property
    def words(self) -> str:
        return " ".join(str(self.schema.get("description", "")).split())


@dataclass(frozen=True)
class Described:
    """An operation with the schemas of what goes in and comes out."""

    operation: AnyOperation
    path: tuple[Field, ...]
    query: tuple[Field, ...]
    headers: tuple[Field, ...]
    # Name of the model of its body; None: no body, or one that is passed on in pieces.
    body: str | None
    # Name of the model of its answer; None: bytes, events or nothing.
    answer: str | None

    @property
    def takes_bytes(self) -> bool:
        return isinstance(self.operation.body, declaration.Stream)

    @property
    def kind(self) -> str:
        """How its answer is read: `json`, `bytes`, `events` or `none`."""
        if self.answer is not None:
            return "json"
        kinds = {declaration.Bytes: "bytes", declaration.Events: "events"}
        return kinds.get(type(self.operation.answer), "none")

    @property
    def is_streamed_too(self) -> bool:
        return isinstance(self.operation.answer, declaration.AnsweredOrEvents)

    @property
    def also_reads(self) -> list[int]:
        """Statuses of 400 and above that are no problems."""
        return [status for status, _ in getattr(self.operation.answer, "also", ()) if status >= 400]

    @property
    def is_keyed(self) -> bool:
        return self.operation.idempotency is not Idempotency.NONE

    @property
    def is_repeatable(self) -> bool:
        return self.operation.is_repeatable or self.operation.method == "PUT"


@dataclass(frozen=True)
class Document:
    """All models by the names of clients, and all operations."""

    models: Mapping[str, Schema]
    operations: tuple[Described, ...]


def read() -> Document:
    """Reads the API as it is now."""
    document = build_document(all_bindings())
    schemas = document["components"]["schemas"]
    names = {name: model_name(name) for name in schemas}
    if len(set(names.values())) < len(names):
        raise SystemExit("two models have one name: give one another in RENAMED")
    by_id = {said["operationId"]: said for methods in document["paths"].values() for said in methods.values()}
    operations = tuple(_described(one, by_id[one.id]) for one in OPERATIONS if _is_sent(one))
    return Document({names[name]: schema for name, schema in sorted(schemas.items())}, operations)


def _is_sent(operation: AnyOperation) -> bool:
    """Whether a client sends it as a request: not what is relayed to a program inside, nor a WebSocket."""
    return not isinstance(operation.answer, declaration.Relay | declaration.Upgrade)


def _described(operation: AnyOperation, said: Schema) -> Described:
    found: dict[str, list[Field]] = {"path": [], "query": [], "header": []}
    for one in said.get("parameters", ()):
        schema = {**one["schema"], "description": one.get("description", "")}
        found[one["in"]].append(Field(one["name"], schema, one.get("required", False)))
    body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    answered = said["responses"].get(str(operation.answer.status), {}).get("content", {})
    answer = answered.get("application/json", {}).get("schema", {})
    return Described(
        operation,
        tuple(found["path"]),
        tuple(found["query"]),
        tuple(one for one in found["header"] if one.name.lower() != IDEMPOTENCY_KEY.lower()),
        _named(body),
        _named(answer)
        if isinstance(operation.answer, declaration.Answered | declaration.AnsweredOrEvents)
        else None,
    )


def _named(schema: Schema) -> str | None:
    return model_name(schema["$ref"].rpartition("/")[2]) if "$ref" in schema else None


def model_name(name: str) -> str:
    """`Limits-Output` is `Limits`, since answers are what people read; what is sent keeps its word."""
    if name in RENAMED:
        return RENAMED[name]
    return name.rpartition("__")[2].removesuffix("-Output").replace("-", "")


def fields_of(schema: Schema) -> Iterator[Field]:
    required = set(schema.get("required", ()))
    for name, inner in schema.get("properties", {}).items():
        yield Field(name, inner, name in required)


def referred(schema: Schema) -> str:
    """The model that a `$ref` names."""
    return model_name(schema["$ref"].rpartition("/")[2])


def of_map(schema: Schema) -> Schema | None:
    """What an object holds under any name; None: it is something else, or it does not say."""
    patterns = schema.get("patternProperties", {})
    held = next(iter(patterns.values()), schema.get("additionalProperties"))
    return held if isinstance(held, Mapping) else None


def camel(name: str) -> str:
    """`createSandbox`, `sandbox_id` and `Idempotency-Key` with a capital for each word."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name))

"""Every operation is declared once, and nothing else knows a path."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from sandboxer.edges.http.app import E2B_ROUTES, MCP_ROUTES, ROUTES, UNSANDBOX_ROUTES, all_bindings
from sandboxer.edges.http.matcher import Routes
from sandboxer.edges.http.sandbox_tokens import OF_SANDBOXES
from sandboxer.wire.e2b import ROOT
from sandboxer.wire.e2b.operations import OPERATIONS as E2B_OPERATIONS
from sandboxer.wire.mcp import OPERATIONS as MCP_OPERATIONS
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    InHeader,
    Json,
    Method,
    Relay,
)
from sandboxer.wire.operations.table import OPERATIONS
from tests.architecture.reach import has_method, has_verb

SRC = Path(__file__).parents[2] / "src"
HTTP = SRC / "sandboxer" / "edges" / "http"
# Why the client has no method, and the command line no verb, for an operation. At most fifteen.
NOT_FOR_CLIENTS = {
    "relayPort": "what is said there are words of a program inside",
    "headFile": "statFile says more",
    "deleteFile": "removeFile does it, and takes names that are no text",
    "showApproval": "a page for a browser, opened from a mail",
    "askForName": "asked by Caddy, from this machine",
    "getX402": "where other people's x402 clients look; listGoods says the same",
    "getPricingForAgents": "where agents look that know no client; getPricing says the same",
    "getOpenapi": "read by tools that make clients",
    "showFrontPage": "read in browsers",
    "getLlmsText": "read by agents that know no client yet",
    "ready": "asked by load balancers",
    "metrics": "scraped by Prometheus",
}
# The match itself; what is signed; what is told to people.
LOOK_AT_PATHS = {"matcher.py", "authentication.py", "envelope.py", "operator_audit.py"}


def test_an_operation_has_an_id_and_a_place_of_its_own() -> None:
    assert [id for id, number in Counter(one.id for one in OPERATIONS).items() if number > 1] == []
    places = Counter((one.method, one.path) for one in OPERATIONS)
    assert [place for place, number in places.items() if number > 1] == []


def test_an_operation_has_a_method_and_a_path() -> None:
    """A group reads both from one text, which no type checker looks into."""
    for one in OPERATIONS:
        assert one.method in get_args(Method), one.id
        assert re.fullmatch(r"/|(/[\w.{}-]+)+", one.path), one.id


def test_every_operation_is_bound_to_one_handler() -> None:
    """What is relayed to programs inside is served by the proxy of ports."""
    bound = Counter(binding.operation.id for binding in all_bindings())
    declared = Counter(one.id for one in OPERATIONS if not isinstance(one.answer, Relay))
    assert bound == declared


def test_whatever_binds_operations_is_served() -> None:
    """Modules of routes are imported with a first request; one that is not named would never be."""
    binding = {
        ".".join(file.relative_to(SRC).with_suffix("").parts)
        for folder in (HTTP / "routes", HTTP.parent / "e2b", HTTP.parent / "mcp", HTTP.parent / "unsandbox")
        for file in folder.rglob("*.py")
        if re.search(r"^BINDINGS\b", file.read_text(), re.MULTILINE)
    }
    assert Counter(each.module for each in (*ROUTES, *E2B_ROUTES, *MCP_ROUTES, *UNSANDBOX_ROUTES)) == Counter(
        binding
    )


def test_a_module_of_routes_serves_nothing_but_the_paths_it_is_imported_for() -> None:
    routes = Routes("sandboxer.edges.http.routes.front", "/")
    with pytest.raises(ValueError, match=r"serves /openapi\.json"):
        _ = routes.bindings


def test_the_names_in_a_path_are_the_fields_of_its_model() -> None:
    for binding in all_bindings():
        operation = binding.operation
        assert re.findall(r"{(\w+)}", operation.path) == list(operation.parameters.model_fields), operation.id


def test_fields_of_the_body_that_add_scopes_are_fields_of_the_body() -> None:
    for one in OPERATIONS:
        for added in one.needs.adds:
            assert isinstance(one.body, Json), one.id
            assert added.field in one.body.model.model_fields, one.id


def test_every_operation_has_a_method_of_the_client_and_a_verb_or_a_reason() -> None:
    assert len(NOT_FOR_CLIENTS) <= 15
    assert {one.id for one in OPERATIONS if not has_method(one)} == set(NOT_FOR_CLIENTS)
    assert {one.id for one in OPERATIONS if not has_verb(one)} == set(NOT_FOR_CLIENTS)


def test_every_operation_decides_about_delegated_keys() -> None:
    """Whoever is asked for a signature may be a delegated key: it needs scopes, or none, or never may."""
    for one in OPERATIONS:
        decided = one.needs in (ANY_KEY, NEVER_DELEGATED) or bool(one.needs.all_of)
        assert decided, one.id


def test_a_header_is_named_as_headers_are() -> None:
    marks = [
        mark.name
        for one in OPERATIONS
        for field in one.query.model_fields.values()
        for mark in field.metadata
        if isinstance(mark, InHeader)
    ]
    assert marks
    assert all(name == name.lower() for name in marks)


def test_nothing_but_the_match_looks_at_a_path() -> None:
    looking = {
        str(file.relative_to(HTTP))
        for file in HTTP.rglob("*.py")
        if re.search(r"scope\[.path.\]|re\.compile\(\s*r?f?[\"']/v1", file.read_text())
    }
    assert looking <= LOOK_AT_PATHS, looking


def test_the_operations_of_e2bs_clients_are_declared_bound_and_decided_about_too() -> None:
    """They are in a table of their own, below a path of their own."""
    assert Counter(one.operation.id for one in all_bindings(E2B_ROUTES)) == Counter(
        one.id for one in E2B_OPERATIONS
    )
    assert {one.id for one in E2B_OPERATIONS}.isdisjoint(one.id for one in OPERATIONS)
    assert not any(one.path.startswith(ROOT) for one in OPERATIONS)
    for one in E2B_OPERATIONS:
        assert one.path.startswith(f"{ROOT}/"), one.id
        assert one.access in (Access.SIGNED, *OF_SANDBOXES), one.id
        assert one.needs == ANY_KEY or bool(one.needs.all_of), one.id
        assert re.findall(r"{(\w+)}", one.path) == list(one.parameters.model_fields), one.id
        is_audited = one.operator_audit is not None or not one.parameters.model_fields
        assert is_audited or one.id == "e2bGet", one.id


def test_the_operations_of_the_mcp_server_are_declared_and_bound_too() -> None:
    assert Counter(one.operation.id for one in all_bindings(MCP_ROUTES)) == Counter(
        one.id for one in MCP_OPERATIONS
    )
    assert {one.id for one in MCP_OPERATIONS}.isdisjoint(one.id for one in OPERATIONS)

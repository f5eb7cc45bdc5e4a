"""Whatever gathers bytes on a tenant's behalf takes them from the budget, or says here what bounds them.

Found are the ways by which bytes become one object in memory: joins, byte arrays, reads to the end. A new one
is either in a function that lets a lease grow, or it is entered below with its bound.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/sandboxer"
PACKAGES = (
    "work",
    "artifacts",
    "access",
    "edges/e2b",
    "edges/http",
    "edges/ssh",
    "edges/proxy",
    "edges/unsandbox",
    "edges/front",
)
PACKAGES += ("backends/supervisor",)
TO_THE_END = {"read", "getvalue", "read_bytes", "readall", "body", "aread"}

HEAD = "parts of a head, which is at most 64 KiB"
OURS = "a file or text of our own making"
INSIDE = "runs inside the sandbox, on its memory"
LEASED = "read already, by a function that let a lease grow"
BOUNDED: dict[tuple[str, str], str] = {
    (
        "backends/supervisor/client.py",
        "SupervisorGuest.describe",
    ): "the description of one sandbox, two small files",
    ("work/services/logs.py", "ServiceLog.__init__"): "a log is cut at its own bound",
    ("work/services/logs.py", "ServiceLog.write_all"): "one batch of the pump, 64 KiB",
    ("work/services/logs.py", "ServiceLog._raw"): "a log is cut at its own bound",
    ("work/services/logs.py", "ServiceLog.batch"): "a log is cut at its own bound",
    ("work/sessions/cells.py", "Cell.text"): "a copy of what a cell keeps, at most 1 MiB of a stream",
    ("work/execute/run.py", "Tape"): "grown by Recorder.take, which lets the lease grow first",
    ("work/sessions/cells.py", "Lines.skip"): "empty",
    ("work/sessions/cells.py", "Lines.feed"): "one line of a driver, at most 6 MiB; held on the shelf",
    ("work/sessions/cells.py", "Lines"): "one line of a driver, at most 6 MiB; held on the shelf",
    ("work/sessions/drivers/keeper.py", "Keeper.__init__"): INSIDE,
    ("work/sessions/drivers/keeper.py", "Keeper.descendants"): INSIDE,
    ("work/sessions/drivers/keeper.py", "first_order"): INSIDE,
    ("work/sessions/drivers/python.py", "known_forms"): INSIDE,
    ("artifacts/images/build.py", "_load"): OURS,
    ("artifacts/images/oci/applying.py", "Applying._place"): "a path, in a process of its own",
    ("artifacts/images/oci/applying.py", "Applying._note"): "a path, in a process of its own",
    ("artifacts/images/oci/applying.py", "Applying._folder"): "a path, in a process of its own",
    ("artifacts/images/oci/archive.py", "_beside"): "a path, in a process of its own",
    ("artifacts/images/oci/tar.py", "in_pieces"): "one piece of a download",
    ("artifacts/images/oci/unpacker.py", "Unpacker._run"): "layers and configuration, bounded where read",
    ("artifacts/images/published/scan.py", ""): OURS,
    ("access/egress/authority.py", "_public_authorities"): OURS,
    ("access/egress/authority.py", "_read"): OURS,
    ("access/egress/proxy/connection.py", "EgressConnection._requests"): HEAD,
    ("access/sudo.py", "SudoHook._program"): OURS,
    ("access/egress/proxy/exchange.py", "_request"): HEAD,
    ("access/egress/proxy/exchange.py", "_pass_answer"): HEAD,
    ("access/egress/proxy/exchange.py", "_switch"): HEAD,
    ("access/egress/proxy/tls.py", "_message"): "a TLS hello, at most 16 KiB",
    ("access/http1/framing.py", "Chunks.feed"): "no more than came by one read of a socket",
    ("edges/e2b/processes.py", "start"): LEASED,
    ("edges/e2b/processes.py", "attach"): LEASED,
    ("edges/e2b/filesystem.py", "watch"): LEASED,
    ("edges/e2b/sandboxes.py", "_said"): LEASED,
    ("edges/unsandbox/translation.py", "sent"): LEASED,
    ("edges/http/routes/keys.py", "tree_in_pieces"): "a few nodes of a tree of keys",
    ("edges/http/idempotency.py", "_begin"): LEASED,
    ("edges/http/binding.py", "OperationRoute._asked"): LEASED,
    ("edges/http/binding.py", "OperationRoute._with_large_bodies.serve_large"): LEASED,
    ("edges/http/purchases.py", "request_hash"): LEASED,
    ("edges/http/routes/payments/invoices.py", "_repeatable_claim"): LEASED,
    ("edges/http/routes/payments/invoices.py", "picture_of"): "the picture of one address",
    ("edges/http/routes/accounts.py", "_csv"): "one page of a list",
    (
        "edges/ssh/channels.py",
        "Intake.__init__",
    ): "one read of a socket; it is read no further while any is left",
    ("edges/ssh/sftp.py", "Sftp.read"): "one SFTP read; unread answers of a connection are bounded",
    ("edges/ssh/sftp.py", "Sftp._program"): "400 bytes of what a program inside says, and one frame",
    ("edges/proxy/exchange.py", "Exchange.begin"): HEAD,
    ("edges/proxy/exchange.py", "Exchange._interim_answer"): HEAD,
    ("edges/proxy/exchange.py", "Exchange._opening"): HEAD,
    ("edges/proxy/exchange.py", "Exchange._switch"): HEAD,
    ("edges/proxy/host_door.py", "without_token"): HEAD,
    ("edges/proxy/host_door.py", "_hide_credentials"): HEAD,
    ("edges/proxy/host_door.py", "_other_cookies"): HEAD,
    ("edges/proxy/answers.py", "_cookie"): HEAD,
    ("edges/proxy/doors.py", "Peer.forwarded"): HEAD,
    ("edges/proxy/upstream.py", "_bridge.outwards"): "one piece of a stream",
    ("backends/supervisor/client.py", "run_request"): "checked against the largest frame",
    ("backends/supervisor/line.py", "Line.hand_over"): "the read-ahead of one line; those of a sandbox share",
}


class Buffers(ast.NodeVisitor):
    """Where bytes are gathered in one module: (name of the function, whether a lease grows there)."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bool]] = []
        self._names: list[str] = []
        self._grows = [False]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node, grows=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node, grows=_grows(node))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node, grows=_grows(node))

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Attribute):
            is_bytes = isinstance(called.value, ast.Constant) and isinstance(called.value.value, bytes)
            to_the_end = called.attr in TO_THE_END and not node.args and not node.keywords
            if to_the_end or (called.attr == "join" and is_bytes):
                self._note()
        elif isinstance(called, ast.Name) and called.id in ("bytearray", "BytesIO"):
            self._note()
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "bytearray":
            self._note()
        self.generic_visit(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, *, grows: bool) -> None:
        self._names.append(node.name)
        self._grows.append(grows)
        self.generic_visit(node)
        self._names.pop()
        self._grows.pop()

    def _note(self) -> None:
        self.found.append((".".join(self._names), self._grows[-1]))


def _grows(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Attribute) and one.attr in ("grow", "grow_at_once") for one in ast.walk(node)
    )


@cache
def _buffers() -> Sequence[tuple[str, str, bool]]:
    found = []
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            seen = Buffers()
            seen.visit(ast.parse(path.read_text()))
            found += [(str(path.relative_to(SOURCE)), name, grows) for name, grows in seen.found]
    return found


def test_bytes_are_gathered_from_the_budget_or_within_a_bound_that_is_named() -> None:
    loose = {(path, name) for path, name, grows in _buffers() if not grows and (path, name) not in BOUNDED}
    assert not loose, "let a lease grow there (kernel/budget.py), or say in BOUNDED what bounds it"


def test_no_bound_is_named_for_what_is_gone() -> None:
    there = {(path, name) for path, name, _ in _buffers()}
    assert not set(BOUNDED) - there

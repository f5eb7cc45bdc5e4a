"""Every route of unsandbox is one of our own operations, bound once, with its terms."""

from __future__ import annotations

import re
from collections import Counter

from sandboxer.edges.http.app import E2B_ROUTES, ROUTES, UNSANDBOX_ROUTES, all_bindings
from sandboxer.wire.operations.declaration import Access, Idempotency
from sandboxer.wire.operations.table import OPERATIONS as OURS
from sandboxer.wire.unsandbox import ROOT
from sandboxer.wire.unsandbox.operations import OPERATIONS

# As its clients and the paper name them.
THEIRS = """
POST /execute  POST /execute/async  POST /run  POST /run/async
GET /jobs  GET /jobs/_  DELETE /jobs/_  GET /languages  GET /shells
GET /sessions  POST /sessions  GET /sessions/_  DELETE /sessions/_  POST /sessions/_/execute
POST /sessions/_/shell  POST /sessions/_/freeze  POST /sessions/_/unfreeze  POST /sessions/_/boost
POST /sessions/_/unboost  POST /sessions/_/lock  POST /sessions/_/unlock  POST /sessions/_/snapshot
POST /sessions/_/restore
GET /services  POST /services  GET /services/_  PATCH /services/_  DELETE /services/_
POST /services/_/execute  POST /services/_/freeze  POST /services/_/unfreeze  POST /services/_/lock
POST /services/_/unlock  POST /services/_/redeploy  POST /services/_/snapshot  GET /services/_/logs
PUT /services/_/domains  GET /services/_/env  PUT /services/_/env  POST /services/_/env
DELETE /services/_/env  POST /services/_/env/export
GET /snapshots  POST /snapshots  GET /snapshots/_  DELETE /snapshots/_  POST /snapshots/_/lock
POST /snapshots/_/unlock  POST /snapshots/_/restore  POST /snapshots/_/clone
GET /images  POST /images  GET /images/owned  GET /images/shared  GET /images/public  GET /images/_
DELETE /images/_  POST /images/_/lock  POST /images/_/unlock  POST /images/_/visibility
POST /images/_/grant  POST /images/_/revoke  GET /images/_/trusted  POST /images/_/transfer
POST /images/_/spawn  POST /images/_/clone
GET /health  GET /cluster  GET /stats  GET /pools  GET /logs  GET /logs/_  GET /logs/stream
GET /logs/_/stream  POST /image  POST /keys/validate  POST /keys/am-i-throttled
GET /pricing-for-agents.json  POST /api/invoices  POST /api/checkout  GET /payment/_/status
POST /api/gift-cards/create  POST /api/gift-cards/redeem  GET /api/gift-cards/_/status
GET /api/gift-cards/pricing
POST /jobs/_/cancel  POST /services/_/resize  POST /images/publish  GET /images/_/access
POST /images/_/access  POST /images/_/access/grant  POST /images/_/access/revoke
DELETE /images/_/access/_  POST /paas/logs  GET /paas/logs/stream
"""


def test_what_their_clients_ask_for_is_declared_and_bound_once() -> None:
    declared = [f"{one.method} {re.sub('{.*?}', '_', one.path.removeprefix(ROOT))}" for one in OPERATIONS]
    assert Counter(declared) == Counter(re.findall(r"[A-Z]+ /\S+", THEIRS))
    assert Counter(one.operation.id for one in all_bindings(UNSANDBOX_ROUTES)) == Counter(
        one.id for one in OPERATIONS
    )


def test_they_are_below_a_path_of_their_own_and_documented_as_nobodys() -> None:
    others = {one.operation.id for one in all_bindings((*ROUTES, *E2B_ROUTES))}
    assert others.isdisjoint(one.id for one in OPERATIONS)
    assert not any(one.path.startswith(ROOT) for one in OURS)
    for one in OPERATIONS:
        assert one.path.startswith(f"{ROOT}/"), one.id
        assert re.findall(r"{(\w+)}", one.path) == list(one.parameters.model_fields), one.id


def test_their_terms_are_those_of_one_of_ours() -> None:
    """Who may call, how it is counted, whether it is repeated: decided once, in our own table."""
    terms = {(one.access, one.needs.is_never_delegated, one.rate) for one in OURS}
    scopes = {scope for one in OURS for scope in one.needs.all_of}
    for one in OPERATIONS:
        assert (one.access, one.needs.is_never_delegated, one.rate) in terms, one.id
        assert one.needs.all_of <= scopes, one.id
        is_makers = one.method == "POST" and "{" not in one.path and one.access is Access.SIGNED
        if is_makers and not re.search("/(keys/|image$|paas/)", one.path):
            assert one.idempotency is not Idempotency.NONE, one.id

"""Identifies callers of operations that are open to whoever holds a token of what the path names: a sandbox,
a volume, or files of a template.

The token is in a header. An address that was signed with it, the link to a file, shows what it signed
instead: the edge that knows the form of such addresses puts into the scope what tells whether a token did. It
counts only for operations that say so (`Access.FILE`).
"""

from __future__ import annotations

from starlette.types import Scope

from sandboxer.access.http1.heads import TRAFFIC_HEADER
from sandboxer.edges.http.matcher import matched
from sandboxer.identity.keys import Caller
from sandboxer.identity.sandbox_tokens import TRAFFIC
from sandboxer.wire.operations.declaration import Access
from sandboxer.wiring import Platform

SANDBOX_TOKEN = b"x-access-token"
# What a token is said to be for, where it is not for a sandbox.
TEMPLATE_PLACE, VOLUME_PLACE = "template:", "volume:"
_PLACES = {"sandbox_id": "", "template_id": TEMPLATE_PLACE, "volume_id": VOLUME_PLACE}
# The scope key of a function that tells whether a token signed the request.
SANDBOX_PROOF = "sandboxer.sandbox_proof"
# What a token of a sandbox opens.
OF_SANDBOXES = frozenset({Access.SANDBOX, Access.FILE, Access.TRAFFIC})


async def by_sandbox_token(platform: Platform, scope: Scope) -> Caller:
    """Raises Unauthenticated."""
    found = matched(scope)
    assert found is not None
    name, named = next(iter(found.names.items()))
    sandbox_id, tokens = _PLACES[name] + named, platform.sandbox_tokens
    access = found.operation.access
    if SANDBOX_PROOF in scope and access is Access.FILE:
        sandbox = await platform.sandboxes.repository.find(sandbox_id)
        account, maker = ("", "") if sandbox is None else (sandbox.account, sandbox.created_by)
        return await tokens.signer(sandbox_id, account, maker, scope[SANDBOX_PROOF])
    head, place = dict(scope["headers"]), sandbox_id
    if not (token := head.get(SANDBOX_TOKEN, b"")) and access is Access.TRAFFIC:
        token, place = head.get(TRAFFIC_HEADER, b""), sandbox_id + TRAFFIC
    return await tokens.authenticate(place, token.decode("latin-1"))

"""Checks that a route makes besides authentication: a second factor, the genesis gate, scopes that a body
asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from sandboxer.accounts.authority import demand
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.identity.genesis.gate import GenesisProof
from sandboxer.identity.genesis.gate import proof_from_headers as proof_of_genesis
from sandboxer.identity.keys import is_public_key
from sandboxer.identity.second_proof import Factor, proof_from_headers
from sandboxer.kernel.errors import Conflict
from sandboxer.sandboxes.use_cases.locks import Lockable, is_guarded
from sandboxer.wire.operations.declaration import BodyScope, Scope


def is_wallet(request: Request) -> bool:
    """Tells whether the caller uses a session or SIGN-IN-WITH-X, and not a key."""
    return not is_public_key(caller(request).public_key)


async def confirm(
    request: Request, *, action: str, resource: str, factor: Factor | None = None, is_strict: bool = False
) -> None:
    """Raises SecondProofNeeded with a challenge, unless the request contains its answer."""
    await platform_of(request).wallets.second_proofs.require(
        caller(request),
        action=action,
        resource=resource,
        proof=proof_from_headers(request.scope["headers"]),
        factor=factor,
        is_strict=is_strict,
    )


async def confirm_new_factor(
    request: Request, *, action: str, resource: str, factor: Factor | None = None
) -> None:
    """Confirms that an account gets another key or wallet. As long as something of it is locked, both kinds
    of proof are needed: otherwise whoever holds one could remove the other, replace it with its own, and
    unlock with the two.
    """
    platform, account = platform_of(request), caller(request).account
    living = platform.sandboxes.dependencies.repository.living()
    is_locked = any(one.account == account and is_guarded(one) for one in living)
    kept = platform.artifacts
    for repository in (kept.snapshots.repository, kept.images.repository, kept.volumes.repository):
        is_locked = is_locked or await repository.has_locked(account)
    if not is_locked:
        await confirm(request, action=action, resource=resource, factor=factor)
        return
    try:
        await confirm(request, action=action, resource=resource, is_strict=True)
    except Conflict as error:
        raise Conflict(
            why="something of this account is locked, and only one kind of proof is left",
            reason="one_factor",
            hint="Ask the operator, who can unlock it; then try again.",
        ) from error


async def confirm_locked(request: Request, thing: Lockable, *, action: str) -> bool:
    """Returns False if it is not locked, without asking. Returns True if the account's other factor allowed
    this once.
    """
    if thing.locked_at is None:
        return False
    await confirm(request, action=action, resource=thing.id, is_strict=True)
    return True


async def pass_gate(request: Request, profile_id: str | None) -> None:
    """Checks the caller against the registry if the operator or the profile demands it. Each proof admits
    once.
    """
    await platform_of(request).admission.pass_gate(profile_id, caller(request), gate_proof(request))


def gate_proof(request: Request) -> GenesisProof | None:
    """Returns the proof for the genesis gate that the request contains."""
    return proof_of_genesis(request.scope["headers"])


async def demand_scope(request: Request, scope: Scope) -> None:
    """Raises Forbidden for a delegated key without the scope; any other key may do what its account may."""
    platform, who = platform_of(request), caller(request)
    if who.is_owner:
        return
    authority = await platform.authorities.of(who)
    if authority.is_delegated:
        demand(authority, scope, now=platform.clock.now())


async def demand_body_scopes(request: Request, adds: Sequence[BodyScope], body: object) -> None:
    """Demands the scopes that fields of the body add."""
    for one in adds:
        if bool(getattr(body, one.field)) is one.is_given:
            await demand_scope(request, one.scope)


async def holds_scope(request: Request, scope: Scope) -> bool:
    platform, who = platform_of(request), caller(request)
    if who.is_owner:
        return True
    authority = await platform.authorities.of(who)
    return not authority.is_delegated or scope in authority.scopes

"""What a request must prove or pay before it is served: second proofs, the genesis gate, scopes, credit.

Strangers on payable routes, and callers whose bucket is too empty, are answered 402, funding needed. A
stranger's request is judged like anyone's before it is asked for money: a malformed one gets 422, one that
costs nothing gets 401. `platform.payment_offers` adds the ways to pay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.requests import Request

from sandboxer.accounts.authority import demand, is_local
from sandboxer.accounts.records import Offer
from sandboxer.edges.http.authentication import STRANGER, demand_way_out
from sandboxer.edges.http.problems import ANSWER_HEADERS
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.identity.authenticate import unsigned
from sandboxer.identity.genesis.gate import GenesisProof
from sandboxer.identity.genesis.gate import proof_from_headers as proof_of_genesis
from sandboxer.identity.keys import Caller, is_public_key
from sandboxer.identity.second_proof import Factor, proof_from_headers
from sandboxer.kernel.errors import Conflict, Forbidden, InsufficientCredit, PaymentNeeded
from sandboxer.sandboxes.use_cases.admission import Price
from sandboxer.sandboxes.use_cases.locks import Lockable, is_guarded
from sandboxer.wire.operations.declaration import BodyScope, Scope, WayOut

# What says nothing in a field that could lead out.
_NO_WAY_OUT = (None, False, "private")


def is_wallet(request: Request) -> bool:
    """Tells whether the caller uses a session or SIGN-IN-WITH-X, and not a key."""
    return not is_public_key(caller(request).public_key)


def refuse_by_socket(who: Caller) -> None:
    """Raises Forbidden for who is known by the socket alone: what is made so would outlive his membership."""
    if is_local(who):
        raise Forbidden(
            why="this needs a key or a wallet, and who comes by the socket has neither",
            reason="by_socket",
            hint=f"Ask the operator for a key: sandboxer key create NAME --account {who.account}",
        )


async def confirm(
    request: Request, *, action: str, resource: str, factor: Factor | None = None, is_strict: bool = False
) -> None:
    """Raises SecondProofNeeded with a challenge, unless the request contains its answer."""
    refuse_by_socket(caller(request))
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
    is_locked = any(is_guarded(one) for one in platform.sandboxes.repository.living(account))
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


async def confirm_locked_sandbox(request: Request, sandbox_id: str, *, action: str) -> bool:
    """Works like `confirm_locked` for a sandbox; one that is ending anyway is not guarded by its lock."""
    found = await platform_of(request).sandboxes.visible(sandbox_id, caller(request))
    return is_guarded(found) and await confirm_locked(request, found, action=action)


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


def demand_no_way_out(request: Request, way: WayOut, *said: object) -> None:
    """Refuses programs in a sandbox without a network what a field of query or body would lead out."""
    if any(getattr(one, name, None) not in _NO_WAY_OUT for one in said for name in way.fields):
        demand_way_out(platform_of(request), caller(request))


async def holds_scope(request: Request, scope: Scope) -> bool:
    platform, who = platform_of(request), caller(request)
    if who.is_owner:
        return True
    authority = await platform.authorities.of(who)
    return not authority.is_delegated or scope in authority.scopes


SIGN_IN = {
    "api_key": "Sign the request with an API key (HMAC-SHA256): docs/reference/auth.md.",
    "session": "POST /v1/auth/challenge, sign its message with a wallet, POST /v1/auth/session.",
    "sign_in_with_x": "GET /v1/auth/siwx, then send SIGN-IN-WITH-X with the request.",
}


PriceOf = Callable[[], Price]


async def paying_caller(request: Request, price: PriceOf) -> Caller:
    """Returns the caller. A stranger gets PaymentNeeded, after the request was found to make sense."""
    if STRANGER not in request.scope:
        return caller(request)
    asked = price()
    if not platform_of(request).settings.is_charged or asked.payable.sats == 0:
        # Money would not help; the caller must authenticate.
        raise unsigned()
    offer = await _offer(request, asked)
    raise PaymentNeeded(**{**_price_facts(asked), **offer.facts})


@asynccontextmanager
async def offering(request: Request, price: PriceOf) -> AsyncIterator[None]:
    """Adds the ways to pay to the error of a known caller that is short of credit."""
    try:
        yield
    except InsufficientCredit as error:
        asked = price()
        offer = await _offer(request, asked)
        facts = {"pricing": "/v1/pricing", **offer.facts}
        error.facts.update({name: value for name, value in facts.items() if name not in error.facts})
        raise


async def _offer(request: Request, asked: Price) -> Offer:
    offer = await platform_of(request).payment_offers.offer(asked.payable)
    request.scope[ANSWER_HEADERS] = dict(offer.headers)
    return offer


def _price_facts(asked: Price) -> dict[str, object]:
    facts: dict[str, object] = {
        "why": f"{asked.payable.description[:1].lower()}{asked.payable.description[1:]} costs sats",
        "pricing": "/v1/pricing",
        "sign_in": SIGN_IN,
        "sats": asked.payable.sats,
        "least_sats": asked.payable.least_sats,
    }
    if asked.quote is not None:
        facts["quote"] = {
            "profile": asked.quote.profile,
            "duration_s": int(asked.quote.duration.total_seconds()),
            "sats": asked.quote.sats,
            "running_msats": asked.quote.card.running,
            "frozen_msats": asked.quote.card.frozen,
            "stored_msats": asked.quote.card.stored,
        }
    return facts

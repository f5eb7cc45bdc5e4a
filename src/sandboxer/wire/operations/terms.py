"""The terms in which operations are declared: who may call, what is needed, how it is counted.

Plain values. Nothing here knows a use case, and nothing here reads a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Access(StrEnum):
    """Who may send a request."""

    # Anybody. Nobody is asked who they are.
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    # A known caller, or a stranger who proves itself by what it sends or acts for nobody.
    EITHER = "either"
    # A known caller, or a stranger, who is told what it costs (402).
    PAYABLE = "payable"
    # Signed by the owner of the platform.
    OWNER = "owner"
    # Anybody on this machine; others as the operator allows.
    LOOPBACK = "loopback"


class Scope(StrEnum):
    """What a delegated key may do. Every other key may do what its account may."""

    SANDBOXES_READ = "sandboxes:read"
    SANDBOXES_CREATE = "sandboxes:create"
    # Extend, freeze, thaw, stop, resume, recreate.
    SANDBOXES_MANAGE = "sandboxes:manage"
    SANDBOXES_DESTROY = "sandboxes:destroy"
    # Commands, processes, terminals.
    EXEC = "exec"
    FILES_READ = "files:read"
    FILES_WRITE = "files:write"
    ACCOUNT_READ = "account:read"
    # Buy, top up, redeem; caps and other settings of the account.
    ACCOUNT_MANAGE = "account:manage"
    # Cut, top up and revoke child keys.
    KEYS_DELEGATE = "keys:delegate"


class RateClass(StrEnum):
    """How limits count a request."""

    # Asked by load balancers and scrapers, many times a minute from one address; costs nothing.
    UNCOUNTED = "uncounted"
    API = "api"
    # Challenges, sessions, key validation: where secrets could be guessed.
    AUTH = "auth"
    # Open to strangers: pricing, discovery.
    PUBLIC = "public"


class Idempotency(StrEnum):
    """What a repeated `Idempotency-Key` gets."""

    # The header is not read.
    NONE = "none"
    # The first answer again.
    PLAIN = "plain"
    # The same, and a thing whose answer was lost is looked up and answered for.
    BOUND = "bound"
    # As bound, for several things made by one request.
    MANY = "many"
    # The first answer held a secret and was not kept: 409.
    SECRET = "secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyScope:
    """A scope that a field of the body adds: where the field is given, or where it is left out."""

    field: str
    scope: Scope
    is_given: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a delegated key needs: all of these scopes, or there are none with which it may."""

    all_of: frozenset[Scope] = frozenset()
    is_never_delegated: bool = False
    adds: tuple[BodyScope, ...] = ()


ANY_KEY = Needs()
NEVER_DELEGATED = Needs(is_never_delegated=True)


def needs(*scopes: Scope, adds: tuple[BodyScope, ...] = ()) -> Needs:
    return Needs(all_of=frozenset(scopes), adds=adds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Written into the audit log before the operator does it with what is a tenant's."""

    # The thing that the first parameter of the path names: "sandbox", "volume".
    thing: str
    # Stored in the log: "sandbox.files.content".
    action: str

"""The whole list of what is served without a signature, and what it counts as for the limits."""

from __future__ import annotations

import re

from starlette.types import Scope

from sandboxer.accounts.limits import Route

# Method and path template, as in the document. `/metrics` has a rule of its own (loopback only, by default).
UNSIGNED: frozenset[tuple[str, str]] = frozenset(
    {
        ("GET", "/health"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/v1/capabilities"),
        ("GET", "/v1/pricing"),
        # What anybody learns from a TLS handshake.
        ("GET", "/v1/edge/ask"),
        ("GET", "/v1/languages"),
        ("GET", "/v1/languages/{name}"),
        ("GET", "/v1/shells"),
        ("GET", "/pricing-for-agents.json"),
        ("GET", "/.well-known/x402"),
        ("GET", "/discovery/resources"),
        # Its id is all one needs to know.
        ("GET", "/v1/payments/{payment_id}"),
        ("GET", "/v1/invoices/{invoice_id}"),
        ("GET", "/v1/invoices/{invoice_id}/qr.svg"),
        ("GET", "/v1/invoices/{invoice_id}/events"),
        ("GET", "/v1/rates"),
        ("GET", "/v1/gift-cards/pricing"),
        ("GET", "/v1/gift-cards/{card_id}"),
        ("GET", "/v1/gift-cards/redemptions/{redemption_id}"),
        # Four words, or a link that somebody was sent, are all one needs.
        ("POST", "/v1/gift-cards/balance"),
        ("GET", "/v1/gift-cards/approvals/{token}"),
        ("POST", "/v1/gift-cards/approvals/{token}/approve"),
        ("POST", "/v1/gift-cards/approvals/{token}/deny"),
        # Here a caller proves who it is by what it sends.
        ("POST", "/v1/auth/challenge"),
        ("POST", "/v1/auth/session"),
        ("GET", "/v1/auth/siwx"),
        ("POST", "/v1/auth/siwx"),
        ("POST", "/v1/keys/validate"),
        ("POST", "/v1/keys/{public_key}/reveal"),
    }
)
# Asked by load balancers and scrapers, many times a minute from one address; they cost nothing.
_PROBES = frozenset({"/health", "/readyz", "/metrics"})
_FILLED = {
    "POST": re.compile(r"/v1/keys/[^/]+/reveal|/v1/gift-cards/approvals/[^/]+/(approve|deny)"),
    "GET": re.compile(
        r"/v1/languages/[^/]+|/v1/payments/[^/]+|/v1/invoices/[^/]+(/qr\.svg|/events)?"
        r"|/v1/gift-cards/((redemptions|approvals)/)?[^/]+"
    ),
}
_AUTH = re.compile(r"/v1/auth/.*|/v1/keys/validate|/v1/keys/[^/]+/(reveal|regenerate)")


def is_unsigned(scope: Scope) -> bool:
    path = scope["path"]
    method = "GET" if scope.get("method") == "HEAD" else scope.get("method")
    if (method, path) in UNSIGNED:
        return True
    return method in _FILLED and _FILLED[method].fullmatch(path) is not None


# Served to strangers too, who are told what it costs: method and path. Each calls `paying.paying_caller`.
PAYABLE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("POST", re.compile(r"/v1/sandboxes")),
    ("PATCH", re.compile(r"/v1/sandboxes/[^/]+/ttl")),
    ("POST", re.compile(r"/v1/topups")),
    ("POST", re.compile(r"/v1/keys/purchase")),
)
_CREDENTIALS = frozenset(
    {b"authorization", b"x-api-key", b"x-signature", b"x-timestamp", b"x-nonce", b"sign-in-with-x"}
)


def is_payable(scope: Scope) -> bool:
    """Does this request ask for something that money buys, and not say who asks?"""
    if scope["type"] != "http" or any(name in _CREDENTIALS for name, _ in scope["headers"]):
        return False
    method, path = scope["method"], scope["path"]
    return any(method == known and pattern.fullmatch(path) for known, pattern in PAYABLE)


# Served to strangers too, who then prove themselves by what they send, or act for nobody: method and path.
EITHER: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("POST", re.compile(r"/v1/gift-cards(/redeem|/gft_[^/]*/(code|revoke|refund))?")),
    # Costs an address: counted as strictly as what guesses secrets. Who has funds has a share of its own.
    ("POST", re.compile(r"/v1/invoices")),
)


def is_for_either(scope: Scope) -> bool:
    """May this request come without a word on who sends it?"""
    if scope["type"] != "http" or any(name in _CREDENTIALS for name, _ in scope["headers"]):
        return False
    method, path = scope["method"], scope["path"]
    return any(method == known and pattern.fullmatch(path) for known, pattern in EITHER)


def kind_of(scope: Scope) -> Route | None:
    """None: not counted at all."""
    path: str = scope["path"]
    if path in _PROBES:
        return None
    if path.startswith(("/v1/auth/", "/v1/keys/")) and _AUTH.fullmatch(path):
        return Route.AUTH
    if path.startswith("/v1/gift-cards") and scope.get("method") == "POST":
        # Words, claims and links could be guessed.
        return Route.AUTH
    if path == "/v1/invoices" and scope.get("method") == "POST":
        return Route.AUTH
    return Route.PUBLIC if is_unsigned(scope) else Route.API

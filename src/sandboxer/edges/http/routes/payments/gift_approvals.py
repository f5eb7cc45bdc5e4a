"""The page behind an approval link, and its two buttons. Looking never answers: programs look at links."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.routes.payments.gift_cards import redemption as shown
from sandboxer.edges.http.state import platform_of
from sandboxer.payments.gift_cards.approval.links import PATH
from sandboxer.payments.gift_cards.approval.mail import dollars
from sandboxer.payments.gift_cards.records import Kind, Redemption
from sandboxer.payments.gift_cards.redeeming import Redeemed, Redeeming
from sandboxer.payments.gift_cards.states import RedemptionState
from sandboxer.wire.operations import gift_cards as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import TokenPath

# Nothing from elsewhere, in no frame, and the link is told to nobody.
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex",
}


async def show(asked: Asked[TokenPath, NoParameters, None]) -> Response:
    one, _ = await _redeeming(asked.request).answering(asked.path.token)
    return HTMLResponse(_page(one, asked.path.token), headers=HEADERS)


async def approve(asked: Asked[TokenPath, NoParameters, None]) -> Response:
    return _answer(asked.request, await _redeeming(asked.request).approve(asked.path.token), asked.path.token)


async def deny(asked: Asked[TokenPath, NoParameters, None]) -> Response:
    return _answer(asked.request, await _redeeming(asked.request).deny(asked.path.token), asked.path.token)


def _answer(request: Request, done: Redeemed, token: str) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_page(done.redemption, token), headers=HEADERS)
    return json_response(shown(done))


def _redeeming(request: Request) -> Redeeming:
    return platform_of(request).payments.gift_cards.redeeming


def _page(one: Redemption, token: str) -> str:
    buys = f"tier {one.tier} for {one.months} months" if one.kind is Kind.TIER else "sats"
    path = escape(f"{PATH}/{token}", quote=True)
    if one.state is RedemptionState.PENDING_APPROVAL:
        act = (
            f'<form method="post" action="{path}/approve"><button>Approve</button></form>'
            f'<form method="post" action="{path}/deny"><button>Deny</button></form>'
        )
    else:
        act = f"<p><b>{escape(one.state.value)}</b>: nothing more to answer.</p>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name="viewport" content="width=device-width"><title>Gift card</title>'
        "<style>body{font:1.1rem system-ui;max-width:32rem;margin:3rem auto;padding:0 1rem}"
        "form{display:inline}button{font:inherit;padding:.6rem 1.4rem;margin:1rem 1rem 0 0}</style>"
        f"<h1>{escape(dollars(one.cents))} of a gift card</h1>"
        f"<p>Somebody wants to redeem it for {escape(buys)}.</p>{act}</html>"
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.SHOW_APPROVAL, show),
    bind(operations.APPROVE_REDEMPTION, approve),
    bind(operations.DENY_REDEMPTION, deny),
)

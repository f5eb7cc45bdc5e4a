"""Assembles the app: the operations that it serves, and its layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from sandboxer.edges.e2b.door import E2bDoor
from sandboxer.edges.http import problems
from sandboxer.edges.http.authentication import Authentication
from sandboxer.edges.http.envelope import Envelope
from sandboxer.edges.http.matcher import Binding, Dispatch, Matcher, Matching, Routes
from sandboxer.edges.mcp.door import McpDoor
from sandboxer.edges.unsandbox.door import UnsandboxDoor
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.program import late
from sandboxer.sandboxes.records import Sandbox
from sandboxer.store.idempotency import Unsettled
from sandboxer.wire import mcp
from sandboxer.wire.e2b import ROOT
from sandboxer.wire.unsandbox import ROOT as UNSANDBOX
from sandboxer.wiring import Platform

if TYPE_CHECKING:
    from sandboxer.edges.e2b import templates as e2b_templates
else:
    e2b_templates = late("sandboxer.edges.e2b.templates")

# FastAPI suppresses this warning while it attaches its own metadata to a body's model; ours are built later.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)

_HERE = "sandboxer.edges.http.routes"
_INSIDE = "/v1/sandboxes/{sandbox_id}"
# In the order of the document.
ROUTES = (
    Routes(f"{_HERE}.sandboxes", "/v1/sandboxes", "/v1/tree"),
    Routes(
        f"{_HERE}.work.processes",
        f"{_INSIDE}/exec",
        f"{_INSIDE}/processes",
        f"{_INSIDE}/terminal",
        f"{_INSIDE}/terminals",
    ),
    Routes(f"{_HERE}.work.execute", "/v1/execute", "/v1/jobs"),
    Routes(f"{_HERE}.work.sessions", "/v1/sessions"),
    Routes(f"{_HERE}.work.files", f"{_INSIDE}/files"),
    Routes(
        f"{_HERE}.access",
        f"{_INSIDE}/previews",
        f"{_INSIDE}/exposure",
        f"{_INSIDE}/secrets",
        "/v1/edge",
        "/v1/secrets",
        "/v1/ssh",
        "/v1/ssh-keys",
    ),
    Routes(f"{_HERE}.egress", f"{_INSIDE}/egress", "/v1/egress"),
    Routes(f"{_HERE}.events", f"{_INSIDE}/events", "/v1/accounts/me/events", "/v1/webhooks"),
    Routes(
        f"{_HERE}.platform",
        "/health",
        "/readyz",
        "/metrics",
        "/v1/capabilities",
        "/v1/cluster",
        "/v1/pools",
        "/v1/stats",
        "/v1/limits",
        "/v1/host",
    ),
    Routes(f"{_HERE}.front", "/", "/openapi.json"),
    Routes(f"{_HERE}.discovery", "/llms.txt", "/.well-known/sandboxer.json"),
    Routes(f"{_HERE}.keys", "/v1/keys"),
    Routes(f"{_HERE}.clients", "/v1/keys/requests"),
    Routes(
        f"{_HERE}.payments.payments",
        "/v1/topups",
        "/v1/keys/purchase",
        "/v1/payments",
        "/.well-known/x402",
        "/discovery/resources",
        "/v1/rates",
        "/v1/pricing",
        "/pricing-for-agents.json",
        "/v1/quotes",
    ),
    Routes(f"{_HERE}.accounts", "/v1/accounts/me", "/v1/transfers", "/v1/usage", "/v1/auth"),
    Routes(f"{_HERE}.operators", "/v1/accounts", "/v1/payouts", "/v1/ledger", "/v1/audit"),
    Routes(f"{_HERE}.payments.invoices", "/v1/invoices", "/v1/refunds"),
    Routes(f"{_HERE}.payments.gift_cards", "/v1/gift-cards"),
    Routes(f"{_HERE}.catalogue", "/v1/images", "/v1/profiles", "/v1/languages", "/v1/shells"),
    Routes(f"{_HERE}.work.services", "/v1/services"),
    Routes(f"{_HERE}.disks", f"{_INSIDE}/snapshots", "/v1/snapshots", "/v1/volumes"),
    Routes(f"{_HERE}.images", "/v1/images"),
)
# For clients of E2B: not ours to document.
E2B_ROUTES = tuple(
    Routes(f"sandboxer.edges.e2b.{name}", ROOT)
    for name in ("sandboxes", "disks", "templates", "volumes", "processes", "filesystem", "files", "code")
)
# Of the MCP server, which has its own words for what is asked of it.
MCP_ROUTES = (
    Routes("sandboxer.edges.mcp.routes", mcp.PATH),
    Routes("sandboxer.edges.mcp.oauth", mcp.RESOURCE, mcp.SERVER, mcp.OAUTH),
)

# And for clients of unsandbox.
UNSANDBOX_ROUTES = tuple(
    Routes(f"sandboxer.edges.unsandbox.{name}", UNSANDBOX)
    for name in ("execution", "sessions", "services", "disks", "portal")
)


def all_bindings(routes: Sequence[Routes] = ROUTES) -> list[Binding]:
    return [binding for each in routes for binding in each.bindings]


def create_app(platform: Platform, routes: Sequence[Routes] = ROUTES) -> Starlette:
    """Returns the app. FastAPI has only the routes (`binding.py`): as the app, it would wrap every request in
    layers that we do not need.
    """
    matcher = Matcher((*routes, *E2B_ROUTES, *MCP_ROUTES, *UNSANDBOX_ROUTES))
    app = Starlette(
        middleware=[
            Middleware(UnsandboxDoor),
            Middleware(E2bDoor, domain=platform.settings.proxy_domain),
            Middleware(McpDoor, settings=platform.settings),
            Middleware(Matching, matcher=matcher),
            Middleware(
                Envelope,
                metrics=platform.metrics,
                spans=platform.spans,
                is_logged=platform.settings.log_requests,
            ),
            Middleware(Authentication, platform=platform),
        ],
        exception_handlers={
            SandboxerError: problems.on_sandboxer_error,
            HTTPException: problems.on_http_exception,
            RequestValidationError: problems.on_invalid_request,
            problems.TooSlow: problems.on_too_slow,
        },
    )
    # Starlette accepts such handlers, although its types mention requests only.
    app.add_exception_handler(WebSocketRequestValidationError, problems.on_invalid_upgrade)

    async def begin(record: Sandbox) -> None:
        await e2b_templates.begin_for_visitor(platform, record)

    platform.access.ports.waker.begin = begin
    app.state.platform = platform
    app.state.readiness = "ready"
    # A future, begun when it is first asked for.
    app.state.document = None
    app.state.routes, app.state.matcher = routes, matcher
    app.state.unsettled = Unsettled()
    app.state.started_at = platform.clock.now()
    # The match made at the outermost layer decides, even if trying the routes in turn would find none.
    app.router.middleware_stack = Dispatch(app.router.app, matcher)
    return app

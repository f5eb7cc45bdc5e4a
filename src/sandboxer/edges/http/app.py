"""The app: the routes, and around them what every request passes. Built on an open platform."""

from __future__ import annotations

import json

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.http import documents, problems
from sandboxer.edges.http.authentication import Authentication
from sandboxer.edges.http.envelope import Envelope
from sandboxer.edges.http.failures import unsigned_failures
from sandboxer.edges.http.routes import (
    accounts,
    auth,
    books,
    catalogue,
    delegation,
    events,
    exec,
    files,
    folders,
    host,
    introspection,
    key_life,
    keys,
    operators,
    pricing,
    probes,
    processes,
    sandboxes,
    terminals,
    usage,
    webhooks,
)
from sandboxer.edges.http.routes.access import edge, egress, previews, secrets, ssh
from sandboxer.edges.http.routes.artifacts import image_archives, image_sharing, images, snapshots, volumes
from sandboxer.edges.http.routes.payments import (
    for_sale,
    gift_approvals,
    gift_cards,
    history,
    invoices,
    key_purchases,
    rates,
    topups,
)
from sandboxer.edges.http.routes.work import (
    boosts,
    execute,
    jobs,
    languages,
    service_settings,
    services,
    sessions,
)
from sandboxer.kernel.errors import SandboxerError
from sandboxer.store.idempotency import Unsettled
from sandboxer.wiring import Platform

# The busiest first: routes are tried in order.
ROUTERS = (
    exec.router,
    execute.router,
    sessions.router,
    files.router,
    sandboxes.router,
    boosts.router,
    processes.router,
    folders.router,
    terminals.router,
    previews.router,
    secrets.router,
    ssh.router,
    egress.router,
    egress.account_router,
    edge.router,
    events.router,
    events.account_router,
    probes.router,
    auth.router,
    # Fixed paths before those with a name in them.
    key_life.router,
    key_purchases.router,
    delegation.router,
    keys.router,
    accounts.router,
    operators.router,
    books.router,
    usage.router,
    webhooks.router,
    invoices.router,
    gift_approvals.router,
    gift_cards.router,
    rates.router,
    pricing.router,
    topups.router,
    history.router,
    for_sale.router,
    catalogue.router,
    jobs.router,
    services.router,
    service_settings.router,
    languages.router,
    introspection.router,
    snapshots.router,
    volumes.router,
    image_archives.router,
    images.router,
    image_sharing.router,
    host.router,
)


def create_app(platform: Platform) -> FastAPI:
    app = FastAPI(
        title="sandboxer",
        version=__version__,
        # Documents are served by our own route, pages for people not at all: nothing unsigned but the list.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Envelope, metrics=platform.metrics),
            Middleware(Authentication, platform=platform),
        ],
        exception_handlers={
            SandboxerError: problems.on_sandboxer_error,
            HTTPException: problems.on_http_exception,
            RequestValidationError: problems.on_invalid_request,
        },
    )
    # Starlette takes such handlers, though its types speak of requests only.
    app.add_exception_handler(WebSocketRequestValidationError, problems.on_invalid_upgrade)
    app.state.platform = platform
    app.state.readiness = "ready"
    app.state.unsettled = Unsettled()
    app.state.started_at = platform.clock.now()
    for router in ROUTERS:
        # Flat: an included router is asked for its routes anew for every request.
        app.router.routes.extend(router.routes)
    _serve_document(app)
    return app


def _serve_document(app: FastAPI) -> None:
    app.state.document = None
    app.add_api_route(
        "/openapi.json",
        _openapi,
        methods=["GET"],
        operation_id="getOpenapi",
        tags=["probes"],
        response_class=Response,
        responses={
            **unsigned_failures(),
            200: {
                "description": "This document.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
        },
        summary="This document",
    )


async def _openapi(request: Request) -> Response:
    """A plain function, not one made for its app: FastAPI remembers every endpoint for ever, and with such a
    one the whole platform that it serves."""
    state = request.app.state
    if state.document is None:
        state.document = json.dumps(documents.build(request.app)).encode()
    return Response(state.document, media_type="application/json")

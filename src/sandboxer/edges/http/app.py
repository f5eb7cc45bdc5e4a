"""Builds the app on an open platform: the routes, and around them what every request passes through."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.http import documents, problems
from sandboxer.edges.http.authentication import Authentication
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.envelope import Envelope
from sandboxer.edges.http.matcher import Binding, Dispatch, Matcher, Matching
from sandboxer.edges.http.routes import (
    accounts,
    auth,
    catalogue,
    events,
    files,
    keys,
    operators,
    pricing,
    processes,
    sandboxes,
    terminals,
    webhooks,
)
from sandboxer.edges.http.routes import platform as platform_routes
from sandboxer.edges.http.routes.access import egress, previews, secrets, ssh
from sandboxer.edges.http.routes.artifacts import images, snapshots, volumes
from sandboxer.edges.http.routes.payments import gift_cards, invoices, payments
from sandboxer.edges.http.routes.work import execute, services, sessions
from sandboxer.kernel.errors import SandboxerError
from sandboxer.store.idempotency import Unsettled
from sandboxer.wire.operations import platform as platform_operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wiring import Platform

# FastAPI suppresses this warning while it attaches its own metadata to a body's model; ours are built later.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)


async def show_document(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    state = asked.request.app.state
    if state.document is None:
        state.document = json.dumps(documents.build(state.bindings)).encode()
    return Response(state.document, media_type="application/json")


BINDINGS: tuple[Binding, ...] = (
    *sandboxes.BINDINGS,
    *processes.BINDINGS,
    *execute.BINDINGS,
    *sessions.BINDINGS,
    *files.BINDINGS,
    *terminals.BINDINGS,
    *previews.BINDINGS,
    *secrets.BINDINGS,
    *ssh.BINDINGS,
    *egress.BINDINGS,
    *events.BINDINGS,
    *platform_routes.BINDINGS,
    *auth.BINDINGS,
    *keys.BINDINGS,
    *payments.BINDINGS,
    *accounts.BINDINGS,
    *operators.BINDINGS,
    *webhooks.BINDINGS,
    *invoices.BINDINGS,
    *gift_cards.BINDINGS,
    *pricing.BINDINGS,
    *catalogue.BINDINGS,
    *services.BINDINGS,
    *snapshots.BINDINGS,
    *volumes.BINDINGS,
    *images.BINDINGS,
    bind(platform_operations.GET_OPENAPI, show_document),
)


def create_app(platform: Platform, bindings: Sequence[Binding] = BINDINGS) -> FastAPI:
    matcher = Matcher(bindings)
    app = FastAPI(
        title="sandboxer",
        version=__version__,
        # Our own route serves the document, and there are no pages for people: nothing is unsigned but the
        # listed operations.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
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
        },
    )
    # Starlette accepts such handlers, although its types mention requests only.
    app.add_exception_handler(WebSocketRequestValidationError, problems.on_invalid_upgrade)
    app.state.platform = platform
    app.state.readiness = "ready"
    # Built when it is first asked for.
    app.state.document = None
    app.state.bindings = bindings
    app.state.unsettled = Unsettled()
    app.state.started_at = platform.clock.now()
    # The match made at the outermost layer decides, even if trying the routes in turn would find none.
    app.router.middleware_stack = Dispatch(app.router.app, matcher)
    return app

"""The app: the routes, and around them what every request passes. Built on an open platform."""

from __future__ import annotations

import json

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.http import documents, problems
from sandboxer.edges.http.authentication import Authentication
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.envelope import Envelope
from sandboxer.edges.http.matching import Binding, Dispatch, Matcher, Matching
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
from sandboxer.wire.operations import probes as probes_operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wiring import Platform


async def show_document(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    state = asked.request.app.state
    if state.document is None:
        state.document = json.dumps(documents.build(asked.request.app)).encode()
    return Response(state.document, media_type="application/json")


BINDINGS: tuple[Binding, ...] = (
    *exec.BINDINGS,
    *execute.BINDINGS,
    *sessions.BINDINGS,
    *files.BINDINGS,
    *sandboxes.BINDINGS,
    *boosts.BINDINGS,
    *processes.BINDINGS,
    *folders.BINDINGS,
    *terminals.BINDINGS,
    *previews.BINDINGS,
    *secrets.BINDINGS,
    *ssh.BINDINGS,
    *egress.BINDINGS,
    *edge.BINDINGS,
    *events.BINDINGS,
    *probes.BINDINGS,
    *auth.BINDINGS,
    *key_life.BINDINGS,
    *key_purchases.BINDINGS,
    *delegation.BINDINGS,
    *keys.BINDINGS,
    *accounts.BINDINGS,
    *operators.BINDINGS,
    *books.BINDINGS,
    *usage.BINDINGS,
    *webhooks.BINDINGS,
    *invoices.BINDINGS,
    *gift_approvals.BINDINGS,
    *gift_cards.BINDINGS,
    *rates.BINDINGS,
    *pricing.BINDINGS,
    *topups.BINDINGS,
    *history.BINDINGS,
    *for_sale.BINDINGS,
    *catalogue.BINDINGS,
    *jobs.BINDINGS,
    *services.BINDINGS,
    *service_settings.BINDINGS,
    *languages.BINDINGS,
    *introspection.BINDINGS,
    *snapshots.BINDINGS,
    *volumes.BINDINGS,
    *image_archives.BINDINGS,
    *images.BINDINGS,
    *image_sharing.BINDINGS,
    *host.BINDINGS,
    bind(probes_operations.GET_OPENAPI, show_document),
)


def create_app(platform: Platform) -> FastAPI:
    matcher = Matcher(BINDINGS)
    app = FastAPI(
        title="sandboxer",
        version=__version__,
        # Documents are served by our own route, pages for people not at all: nothing unsigned but the list.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Matching, matcher=matcher),
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
    # Built when somebody asks for it first.
    app.state.document = None
    app.state.unsettled = Unsettled()
    app.state.started_at = platform.clock.now()
    for binding in BINDINGS:
        app.router.routes.append(binding.route)
        if binding.websocket is not None:
            app.router.routes.append(binding.websocket)
    # The match that was made outermost decides, also where no route would be found by trying them in turn.
    app.router.middleware_stack = Dispatch(app.router.app, matcher)
    return app

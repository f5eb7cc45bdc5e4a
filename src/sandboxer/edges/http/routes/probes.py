"""The only unsigned routes: is it up, is it ready, figures for loopback, the document, what it can do."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

from starlette.responses import Response
from starlette.types import Scope

from sandboxer import __version__
from sandboxer.backends.contract import Capability, Trust, capabilities_of
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.health import look
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.routes.host import backend
from sandboxer.identity.authenticate import MAX_V1_BODY
from sandboxer.kernel.errors import Forbidden
from sandboxer.wire.capabilities import Capabilities, SignatureVersion
from sandboxer.wire.exec import OUTPUT_LIMIT_DEFAULT, OUTPUT_LIMIT_MAX, TIMEOUT_DEFAULT_S, TIMEOUT_MAX_S
from sandboxer.wire.host import Readiness
from sandboxer.wire.operations import probes as operations
from sandboxer.wire.operations.declaration import NoParameters

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via", b"x-forwarded-host"})
_V1_HEADERS = ["Authorization", "X-Timestamp", "X-Signature"]
_SIGNATURES = [
    SignatureVersion(
        name="v2",
        canonical="v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}",
        headers=[*_V1_HEADERS, "X-Nonce", "X-Content-SHA256"],
    ),
    SignatureVersion(
        name="v1", canonical="{timestamp}:{METHOD}:{path with query}:{raw body}", headers=_V1_HEADERS
    ),
]


async def health(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    seen = await look(asked.platform)
    return json_response(seen, 200 if seen.status == "ok" else 503)


async def ready(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    status = asked.request.app.state.readiness
    return json_response(Readiness(status=status), 200 if status == "ready" else 503)


async def metrics(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    platform = asked.platform
    if not (platform.settings.metrics_public or is_local(asked.request.scope)):
        raise Forbidden(why="metrics are for callers on this host", hint="Ask from the host itself.")
    for state, number in (await platform.sandboxes.counts()).items():
        platform.metrics.sandboxes.labels(state).set(number)
    return Response(platform.metrics.render(), media_type=platform.metrics.content_type)


async def capabilities(asked: Asked[NoParameters, NoParameters, None]) -> Capabilities:
    platform = asked.platform
    room = platform.sandboxes.room
    # What is known, not asked anew: anyone may call this, and asking costs.
    prints = room.known_fingerprints or await platform.sandboxes.fingerprints()
    return Capabilities(
        version=__version__,
        backends=[
            # What the host lacks, and why, is for its owner (GET /v1/host).
            backend(name, replace(seen, lacks=()), _names(capabilities_of(room.backends[name])))
            for name, seen in sorted(prints.items())
        ],
        trust_levels=["zero"] if room.trust_max is Trust.ZERO else ["zero", "semi"],
        features=[
            "exec",
            "processes",
            "files",
            "watch",
            "tar",
            "terminals",
            "events",
            "idempotency",
            "wallet_sessions",
            "sign_in_with_x",
            "delegated_keys",
            "accounts",
            "pricing",
            "languages",
            "introspection",
        ],
        signatures=_SIGNATURES,
        limits={
            "output_limit_default_bytes": OUTPUT_LIMIT_DEFAULT,
            "output_limit_max_bytes": OUTPUT_LIMIT_MAX,
            "timeout_default_s": TIMEOUT_DEFAULT_S,
            "timeout_max_s": TIMEOUT_MAX_S,
            "v1_body_max_bytes": MAX_V1_BODY,
        },
    )


def _names(capabilities: frozenset[Capability]) -> list[str]:
    return [capability.value for capability in capabilities]


def is_local(scope: Scope) -> bool:
    """By the peer's address; a request that came through a proxy is not local whoever the proxy is."""
    peer = scope.get("client")
    if peer is None or any(name in _FORWARDED for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address(peer[0]).is_loopback
    except ValueError:
        return False


BINDINGS: tuple[Binding, ...] = (
    bind(operations.HEALTH, health),
    bind(operations.READY, ready),
    bind(operations.METRICS, metrics),
    bind(operations.GET_CAPABILITIES, capabilities),
)

"""What the proxy itself says to a program inside: messages that name the rule and how to ask for another."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping

from sandboxer.access.egress.decision import Ask, Deny

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_PREFIX = "urn:sandboxer:problem:"


def problem(status: int, code: str, detail: str, next_step: str, **facts: object) -> bytes:
    """Closes the connection: what is left of a refused request is not worth reading."""
    members = {
        **facts,
        "type": _PREFIX + code,
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "next_step": next_step,
    }
    return _message(status, json.dumps(members).encode(), {"x-sandboxer-egress": code})


def denied(deny: Deny, ask: Ask | None, sandbox_id: str) -> bytes:
    facts: dict[str, object] = {"reason": deny.reason}
    if deny.rule is not None:
        facts["rule"] = deny.rule.words()
    step = "Ask whoever owns this sandbox to change its egress rules."
    if ask is not None:
        facts |= {"host": ask.host, "port": ask.port}
        where = ask.host if ask.port in (80, 443) else f"{ask.host}:{ask.port}"
        if deny.reason in ("no_rule", "port"):
            step = (
                f"Ask the owner for it: `sandboxer egress allow {sandbox_id} {where}`, or PATCH"
                f" /v1/sandboxes/{sandbox_id}/egress. `sandboxer egress explain` says why in full."
            )
    what = "This" if ask is None else ask.url() if ask.path is not None else f"{ask.host}:{ask.port}"
    return problem(403, "egress_denied", f"{what} is not allowed: {deny.why}.", step, **facts)


def _message(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body

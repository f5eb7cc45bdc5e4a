"""A URL as the proxy would be asked for it, and what it would say."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxer.access.egress.decision import Allow, Ask, Deny
from sandboxer.access.egress.names import BadName, host_of
from sandboxer.kernel.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    ask: Ask
    verdict: Allow | Deny


def ask_of(url: str, method: str) -> Ask:
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        port = parts.port
    except ValueError:
        raise InvalidRequest(field="url", why="it is not a URL") from None
    if parts.scheme not in ("https", "http") or "@" in parts.netloc or "[" in parts.netloc:
        raise InvalidRequest(field="url", why="it must be an http or https URL without a user or brackets")
    try:
        host = host_of(parts.hostname or "")
    except BadName as error:
        raise InvalidRequest(field="url", why=str(error)) from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = parts.scheme == "https"
    return Ask(host, port or (443 if is_tls else 80), is_tls, method.upper(), path)

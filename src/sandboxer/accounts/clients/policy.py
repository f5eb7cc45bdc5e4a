"""What a program must say to be heard: where it is answered, by which proof, for which resource. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from sandboxer.accounts.clients.records import Client
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.operations.declaration import Scope

MAX_URIS, MAX_URI, MAX_NAME = 10, 2048, 100
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,40}")
# Of addresses that a browser runs, reads or shows by itself.
_NEVER = frozenset({"javascript", "data", "file", "vbscript", "about", "blob", "ftp", "ws", "wss"})
_REGISTERED = "dcr."


def wrong(error: str, field: str, why: str) -> InvalidRequest:
    """Returns the refusal of a program's request; `error` is OAuth's word for it."""
    return InvalidRequest(field=field, why=why, reason=error)


def described(document: Any, client_id: str | None = None) -> Client:
    """Returns the program that a description is about. Raises InvalidRequest."""
    if not isinstance(document, Mapping):
        raise wrong("invalid_client_metadata", "client", "it is not described by a JSON object")
    if client_id is not None and document.get("client_id") != client_id:
        raise wrong("invalid_client", "client_id", "the document at this address is about another client")
    method = document.get("token_endpoint_auth_method", "none")
    if method != "none" and client_id is not None:
        raise wrong("invalid_client_metadata", "token_endpoint_auth_method", "only `none` is taken")
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_URIS:
        raise wrong("invalid_redirect_uri", "redirect_uris", f"there must be 1 to {MAX_URIS}")
    for uri in uris:
        demand_redirect(uri)
    name = document.get("client_name")
    shown = "".join(c for c in str(name or "a program") if c.isprintable())[:MAX_NAME]
    return Client(id=client_id or "", name=shown, redirect_uris=tuple(uris))


def demand_redirect(uri: object) -> None:
    """Raises InvalidRequest unless a browser may be sent there with an answer: to a program on its own
    machine, to one that the system opens, or over TLS.
    """
    if not isinstance(uri, str) or len(uri) > MAX_URI or not uri.isascii() or not uri.isprintable():
        raise wrong("invalid_redirect_uri", "redirect_uri", "it is no address")
    parts = _split(uri)
    is_known = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts))
    is_of_system = parts.scheme not in {*_NEVER, "http", "https"} and _SCHEME.fullmatch(parts.scheme)
    if parts.fragment or "#" in uri or not (is_known or is_of_system):
        raise wrong("invalid_redirect_uri", "redirect_uri", "it must be https, or of the user's own machine")


def is_redirect_of(client: Client, uri: str) -> bool:
    """Says whether a client is answered at this address. On the user's own machine any port is its."""
    return any(uri == known or _is_same_but_port(uri, known) for known in client.redirect_uris)


def _is_same_but_port(uri: str, known: str) -> bool:
    one, other = _split(uri), _split(known)
    if not (_is_loopback(one) and _is_loopback(other)) or one.scheme != "http":
        return False
    return (one.scheme, one.hostname, one.path, one.query) == (
        other.scheme,
        other.hostname,
        other.path,
        other.query,
    )


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        raise wrong("invalid_redirect_uri", "redirect_uri", "it is no address") from None
    return parts


def _is_loopback(parts: SplitResult) -> bool:
    if parts.username is not None:
        return False
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_document(client_id: str) -> bool:
    """Says whether a client's id is the address of its description."""
    return client_id.startswith(("https://", "http://"))


def demand_document(client_id: str, *, allow_private: bool) -> None:
    """Raises InvalidRequest unless the id is an address that a description may have."""
    parts = _split(client_id)
    steps = parts.path.split("/")
    is_plain = not (parts.fragment or parts.username or parts.password or {".", ".."} & {*steps})
    is_safe = parts.scheme == "https" or (allow_private and _is_loopback(parts))
    if len(client_id) > MAX_URI or parts.path in ("", "/") or not is_plain or not is_safe:
        raise wrong("invalid_client", "client_id", "it must be an https address with a path")


def demand_challenge(challenge: str | None, method: str | None) -> str:
    """Returns the challenge of PKCE. Raises InvalidRequest for a request without one."""
    if method != "S256" or challenge is None or not _CHALLENGE.fullmatch(challenge):
        raise wrong("invalid_request", "code_challenge", "PKCE with S256 is needed")
    return challenge


def is_verified(challenge: str, verifier: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    digest = hashlib.sha256(verifier.encode()).digest()
    return hmac.compare_digest(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), challenge)


def demand_resource(resource: str | None, own: tuple[str, ...]) -> None:
    """Raises InvalidRequest if the token is for another resource than ours. Older programs name none."""
    if resource is not None and resource.rstrip("/") not in own:
        raise wrong("invalid_target", "resource", f"tokens are for {own[0]} alone")


def wanted_scopes(text: str | None, usual: frozenset[Scope]) -> frozenset[Scope]:
    """Returns what a program asks to do: all that is usual unless it says less or other things."""
    words = (text or "").split()
    known = {scope.value: scope for scope in Scope}
    if unknown := [word for word in words if word not in known]:
        raise wrong("invalid_scope", "scope", f"there is no scope {unknown[0][:64]}")
    return frozenset(known[word] for word in words) or usual


def registered(client: Client, secret: bytes) -> str:
    """Returns the id of a client that describes itself: the description, sealed, so that none is stored."""
    said = json.dumps([client.name, *client.redirect_uris], separators=(",", ":")).encode()
    return _REGISTERED + _text(said + hmac.digest(secret, said, "sha256"))


def read_registered(client_id: str, secret: bytes) -> Client | None:
    """Returns the client of such an id; None for any other."""
    if not client_id.startswith(_REGISTERED):
        return None
    try:
        text = client_id.removeprefix(_REGISTERED)
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    said, seal = raw[:-32], raw[-32:]
    if not hmac.compare_digest(hmac.digest(secret, said, "sha256"), seal):
        return None
    name, *uris = json.loads(said)
    return Client(id=client_id, name=name, redirect_uris=tuple(uris))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

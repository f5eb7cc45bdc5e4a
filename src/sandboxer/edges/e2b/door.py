"""The door of E2B's clients: it reads their addresses and credentials as ours, before anything else looks at
a request, and says refusals in their words.

An API key becomes a bearer token. The API is at `/e2b`, or at the root of `api.{domain}`. A request to the
daemon of a sandbox (envd) names that sandbox in a header below `/e2b/envd`, or is at the root of
`49983-{id}.{domain}`, the code interpreter at that of `49999-…`. Each becomes a path of the table
(`wire/e2b/operations.py`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxer.access.ports.ports import read_host, without_port
from sandboxer.edges.http.sandbox_tokens import SANDBOX_PROOF, SANDBOX_TOKEN
from sandboxer.kernel.program import late
from sandboxer.wire.e2b import API_LABEL, CODE_PORT, ENVD_PORT, ROOT, bearer_of

if TYPE_CHECKING:
    from sandboxer.edges.e2b import refusals
else:
    refusals = late("sandboxer.edges.e2b.refusals")

ENVD = f"{ROOT}/envd"
# What E2B's own API begins with; whatever else is asked for at `api.{domain}` is asked of ours.
_THEIRS = re.compile(r"/(sandboxes|templates|snapshots|volumes|volumecontent|secrets|v2|v3)(/|$)")
_CONTENT, _TEMPLATES = f"{ROOT}/volumecontent/", f"{ROOT}/templates/"
_OUTER_ID = re.compile(r"/sbx-([0-9a-z]{26})(?=/|$)")
# When a signed address ends, in seconds.
_MOMENT = re.compile(r"[0-9]{1,18}")
# Whatever could name a caller to our own API counts for nothing here.
_OURS = frozenset(
    {b"authorization", b"x-signature", b"x-timestamp", b"x-nonce", b"x-content-sha256", b"sign-in-with-x"}
)
USER = "sandboxer.e2b.user"


class E2bDoor:
    def __init__(self, app: ASGIApp, domain: str) -> None:
        self._app = app
        self._domain = domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._meant(scope) if scope["type"] == "http" else None
        if path is not None:
            kind = _value(scope["headers"], b"content-type").decode("latin-1")
            is_envd = _enter(scope, path)
            is_over = _is_over(scope)
            send = refusals.Refusals(send, is_envd=is_envd, content_type=kind, is_over=is_over).send
        await self._app(scope, receive, send)

    def _meant(self, scope: Scope) -> str | None:
        """Returns the path below `/e2b` that a request means; None if it is not for this door."""
        path: str = _OUTER_ID.sub(r"/sbx_\1", scope["path"])
        if path.startswith(ENVD + "/"):
            sandbox = _value(scope["headers"], b"e2b-sandbox-id").decode("latin-1")
            return _daemon(sandbox.replace("sbx-", "sbx_", 1), path.removeprefix(ENVD))
        if path.startswith(ROOT + "/"):
            return path
        host = _value(scope["headers"], b"host").decode("latin-1").lower()
        if "." + self._domain not in host or not (name := without_port(host)).endswith("." + self._domain):
            return None
        if name == f"{API_LABEL}.{self._domain}" and _THEIRS.match(path):
            return ROOT + path
        address = read_host(name, self._domain)
        is_envd = address is not None and address.port in (ENVD_PORT, CODE_PORT)
        return _daemon(address.sandbox_id, path) if address is not None and is_envd else None


def _daemon(sandbox_id: str, path: str) -> str:
    # A name that stands for nothing: there is no such sandbox.
    return f"{ROOT}/sandboxes/{sandbox_id or '-'}/envd{path}"


def _enter(scope: Scope, path: str) -> bool:
    """Translates a request in place. Returns whether it is for the daemon of a sandbox."""
    headers = scope["headers"]
    is_envd = "/envd/" in path
    if is_envd and not _value(headers, SANDBOX_TOKEN) and b"signature=" in scope["query_string"]:
        # The user is part of what was signed; a header is not.
        scope[SANDBOX_PROOF] = _signed_by(scope)
    elif is_envd:
        scope[USER] = _value(headers, b"authorization")
    if path.startswith(_CONTENT):
        # The token of a volume comes as a bearer's.
        token = _value(headers, b"authorization").removeprefix(b"Bearer ")
        headers = [(name, value) for name, value in headers if name != SANDBOX_TOKEN] + [
            (SANDBOX_TOKEN, token)
        ]
    key = _value(headers, b"x-api-key").decode("latin-1")
    kept = [(name, value) for name, value in headers if name not in _OURS and name != b"x-api-key"]
    if key and not is_envd:
        kept.append((b"authorization", b"Bearer " + bearer_of(key).encode("latin-1")))
    if path.startswith(_TEMPLATES) and (sent := parse_qs(scope["query_string"]).get(b"token")):
        # Files are sent to an address, without a header.
        kept = [(name, value) for name, value in kept if name != SANDBOX_TOKEN] + [(SANDBOX_TOKEN, sent[0])]
    scope.update(path=path, raw_path=path.encode(), headers=kept)
    return is_envd


def _signed_by(scope: Scope) -> Callable[[str], bool]:
    """Returns what tells whether a token signed the address of a file (E2B's signature, version 1)."""
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = dict(given)
    does = "read" if scope["method"] == "GET" else "write"
    ends = query.get("signature_expiration")
    is_over = _is_over(scope)
    # Said twice, it could be signed once and done otherwise.
    is_plain = len(query) == len(given)

    def is_signed(token: str) -> bool:
        words = [query.get("path", ""), does, query.get("username", ""), token]
        said = ":".join(words if ends is None else [*words, ends])
        digest = base64.b64encode(hashlib.sha256(said.encode("utf-8", "surrogateescape")).digest())
        # Not every client escapes the plus.
        shown = query.get("signature", "").replace(" ", "+").encode("utf-8", "surrogateescape")
        return is_plain and not is_over and hmac.compare_digest(b"v1_" + digest.rstrip(b"="), shown)

    return is_signed


def _is_over(scope: Scope) -> bool:
    """Tells whether the time of a signed address is over."""
    if b"signature_expiration=" not in scope["query_string"]:
        return False
    ends = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("signature_expiration", "")
    return not (_MOMENT.fullmatch(ends) and int(ends) > time.time())


def _value(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for given, value in headers if given == name), b"")

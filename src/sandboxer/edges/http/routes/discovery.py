"""What a stranger finds who knows only this address: a text for agents, and the same as JSON.

The text is enough to begin: it shows each request of a first sandbox whole, and says what to keep of each
answer. Paths come from the table of operations and bodies from their models, so that neither can go stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pydantic import BaseModel
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.routes.platform import SIGNATURES
from sandboxer.settings import Settings
from sandboxer.wire import mcp
from sandboxer.wire.e2b import ROOT as E2B_ROOT
from sandboxer.wire.operations import auth, execute, inside, payments, platform, sandboxes
from sandboxer.wire.operations.declaration import Access, AnyOperation, Relay
from sandboxer.wire.operations.table import OPERATIONS
from sandboxer.wire.platform import Discovery
from sandboxer.wire.processes import RunCommand
from sandboxer.wire.sandboxes import CreateSandbox

_WHO = {
    Access.SIGNED: "",
    Access.UNSIGNED: " (open to everybody)",
    Access.EITHER: " (open to everybody; with a key it is yours)",
    Access.OWNER: " (operator)",
    Access.LOOPBACK: " (from the platform's own machine)",
}
_LINKS: dict[str, AnyOperation] = {
    "openapi": platform.GET_OPENAPI,
    "text": platform.GET_LLMS_TEXT,
    "health": platform.HEALTH,
    "capabilities": platform.GET_CAPABILITIES,
    "languages": platform.LIST_LANGUAGES,
    "pricing": payments.GET_PRICING_FOR_AGENTS,
    "x402": payments.GET_X402,
    "for_sale": payments.LIST_GOODS,
    "sandboxes": sandboxes.CREATE_SANDBOX,
    "execute": execute.EXECUTE_CODE,
    "mcp": mcp.POST,
}
_SECOND = SIGNATURES[0]
# How each name of the signature is made, in the order in which they depend on each other.
_MADE = (
    "- timestamp: seconds since 1970",
    "- nonce: 32 random hex digits, other ones for each request",
    "- content_sha256: SHA-256 of the body, in hex",
    "- signature: HMAC-SHA256, in hex, with `secret_key` as its key, of this text:",
)


async def llms_text(asked: Asked) -> Response:
    text = "\n".join(_lines(asked.platform.settings))
    return Response(text + "\n", media_type="text/plain; charset=utf-8")


async def discovery(asked: Asked) -> Discovery:
    settings = asked.platform.settings
    return Discovery(
        version=__version__,
        url=settings.url,
        links={name: settings.url + one.path for name, one in _LINKS.items()},
        is_charged=settings.is_charged,
        takes_strangers=not settings.is_by_invitation,
        takes_bearer_tokens=settings.bearer_tokens,
        signatures=SIGNATURES,
        e2b_url=settings.url + E2B_ROOT,
    )


def _lines(settings: Settings) -> Iterator[str]:
    url = settings.url
    yield from (
        "# sandboxer",
        "",
        "> Walled computers for agents, by HTTP: create a sandbox, run commands and code in it, move files,",
        "> snapshot and fork it, give it an address, delegate a part of what you have to others.",
        "",
        f"Address: {url}",
        f"This as JSON: {url}{platform.DISCOVER.path}",
        f"Every operation in full: {url}{platform.GET_OPENAPI.path}",
        f"What this platform can do: {url}{platform.GET_CAPABILITIES.path}",
        f"The same as tools for models (MCP): {url}{mcp.PATH}",
        "",
        "## Authenticate",
        "- Sign each request with a key, as below, or send `Authorization: Bearer sk_…` on the platform's",
        "  own machine or over TLS.",
        f"- A wallet signs in without a key: {_named(auth.CHALLENGE_WALLET)},",
        f"  then {_named(auth.OPEN_SESSION)}.",
        "- Repeat what may have been lost with the same `Idempotency-Key`: it is not done twice.",
        "",
        "## Pay",
        *_paying(is_charged=settings.is_charged),
        "",
        *_first_sandbox(url, is_charged=settings.is_charged),
        "",
        "Errors are application/problem+json: `detail` says what is wrong, `next_step` what to do.",
    )
    for noun, group in groupby(sorted(OPERATIONS, key=lambda one: one.noun), key=lambda one: one.noun):
        yield from ("", f"## {noun[:1].upper()}{noun[1:]}")
        yield from (
            f"- {_named(one)}: {one.summary}{_WHO.get(one.access, '')}"
            for one in group
            if not isinstance(one.answer, Relay)
        )


def _paying(*, is_charged: bool) -> Iterator[str]:
    if not is_charged:
        yield "- Nothing costs anything here; the operator opens accounts and gives out keys."
        return
    yield f"- {_named(payments.GET_PRICING)}: what things cost, and what is taken."
    yield f"- A 402 offers ways to pay: answer it by x402, an invoice ({_named(payments.CREATE_INVOICE)})"
    yield "  or a gift card."


def _first_sandbox(url: str, *, is_charged: bool) -> Iterator[str]:
    """Shows the requests of a first sandbox in order. Names in braces stand for what the caller has."""
    create = _request(url, sandboxes.CREATE_SANDBOX, CreateSandbox(ttl="10m"), is_signed=not is_charged)
    yield from (
        "## A first sandbox",
        "Send these requests in order. A name in braces is yours to fill in: from an answer whose `Keep`",
        "names it, or as `Signed requests` says.",
        "",
        "### Signed requests",
        *_MADE,
        "```text",
        _SECOND.canonical.replace("path with query", "path_with_query").replace(
            "content sha256", "content_sha256"
        ),
        "```",
        "",
        "### 1. Create it" + (", and pay for it" if is_charged else ""),
        *create,
    )
    if is_charged:
        yield "Answered with 402, pay by x402 (version 2): sign one of the offers of the header"
        yield "`payment-required` and send the same request again with the header `payment-signature`."
        yield "Keep: sandbox_id = id, public_key = key.public_key, secret_key = key.secret_key"
    else:
        yield "The operator gives you `public_key` and `secret_key`."
        yield "Keep: sandbox_id = id"
    yield from ("", "### 2. Run something in it")
    yield from _request(url, inside.RUN_COMMAND, RunCommand(command="echo hello"))
    yield "Keep: output = stdout, exit_code = exit_code"
    yield from ("", "### 3. End it", *_request(url, sandboxes.DESTROY_SANDBOX))


def _request(
    url: str, operation: AnyOperation, body: BaseModel | None = None, *, is_signed: bool = True
) -> Iterator[str]:
    yield from ("```http", f"{operation.method} {url}{operation.path}")
    if is_signed:
        yield from _signed_heads(_SECOND.headers)
    if body is None:
        yield "```"
        return
    yield from ("Content-Type: application/json", "", body.model_dump_json(exclude_unset=True), "```")


def _signed_heads(names: Sequence[str]) -> Iterator[str]:
    values = {
        "Authorization": "Bearer {public_key}",
        "X-Timestamp": "{timestamp}",
        "X-Nonce": "{nonce}",
        "X-Content-SHA256": "{content_sha256}",
        "X-Signature": "{signature}",
    }
    yield from (f"{name}: {values[name]}" for name in names)


def _named(operation: AnyOperation) -> str:
    return f"{operation.method} {operation.path}"


BINDINGS = (bind(platform.GET_LLMS_TEXT, llms_text), bind(platform.DISCOVER, discovery))

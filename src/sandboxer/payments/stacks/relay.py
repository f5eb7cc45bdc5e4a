"""A sponsor relay signs as sponsor, pays the fee, broadcasts a payment and reports what became of it.

A call ends in one of three ways: with an answer, because the relay was never reached, or unknown. Unknown is
not a failure: the payment may be on chain. Asking again with the same words is safe, because the relay keeps
answers by identifier and the chain accepts a nonce once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx

from sandboxer.kernel.errors import ChainUnavailable, InvalidRequest
from sandboxer.payments.stacks.relay_messages import (
    PAYMENT_ID,
    SETTLE_ERRORS,
    Json,
    NotSettled,
    PaymentState,
    Settled,
    Status,
    Unreadable,
    payment_body,
    read_settlement,
    read_status,
    read_txid,
    read_verification,
)

T = TypeVar("T")
# A relay waits a minute for the chain; we wait a little longer than the relay.
SETTLE_SECONDS = 65.0
ASK_SECONDS = 10.0
MAX_ANSWER = 256 * 1024
_NEVER_HEARD = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The payment was sent, but no usable answer came: it may have been broadcast."""

    why: str
    timed_out: bool = False


class Relay:
    def __init__(
        self,
        url: str,
        http: httpx.AsyncClient,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self._http = http
        self._settle_seconds = settle_seconds
        self._ask_seconds = ask_seconds

    async def settle(self, payload: Json, requirements: Json) -> Settled | NotSettled | Unknown:
        """Raises ChainUnavailable only when the relay cannot have heard of the payment."""
        body = payment_body(payload, requirements)
        try:
            answer = await self._call("POST", "/settle", self._settle_seconds, body)
            if answer.status_code in (429, 503):
                # Turned away at the door: nothing was looked at.
                raise ChainUnavailable(chain="stacks relay", why=f"the relay answered {answer.status_code}")
            return _settlement(answer)
        except (httpx.RequestError, Unreadable) as lost:
            timed_out = isinstance(lost, httpx.TimeoutException)
            return Unknown(f"{type(lost).__name__}: {lost}"[:200], timed_out)

    async def verify(self, payload: Json, requirements: Json) -> NotSettled | None:
        """None: the relay would settle it."""
        answer = await self._ask("POST", "/verify", payment_body(payload, requirements))
        return _understood(read_verification, answer)

    async def supported(self) -> Json:
        answer = await self._ask("GET", "/supported")
        return _understood(_any_object, answer)

    async def payment(self, payment_id: str) -> Status:
        """A payment that the relay does not know is a status (`not_found`), not an error."""
        if PAYMENT_ID.fullmatch(payment_id) is None:
            raise InvalidRequest(field="payment_id", why="it begins with pay_")
        return _status(await self._ask("GET", f"/payment/{payment_id}"))

    async def transaction(self, txid: str) -> Status:
        try:
            path = f"/settle/status/{read_txid(txid)}"
        except Unreadable:
            raise InvalidRequest(field="txid", why="it is not 64 hex digits") from None
        return _status(await self._ask("GET", path))

    async def _ask(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        try:
            answer = await self._call(method, path, self._ask_seconds, body)
        except httpx.RequestError as gone:
            raise ChainUnavailable(chain="stacks relay", why=f"{type(gone).__name__} on {path}") from gone
        if answer.status_code >= 500 or answer.status_code == 429:
            raise ChainUnavailable(
                chain="stacks relay", why=f"the relay answered {answer.status_code} on {path}"
            )
        return answer

    async def _call(self, method: str, path: str, seconds: float, body: Json | None) -> httpx.Response:
        try:
            return await self._http.request(
                method, self.url + path, json=body, timeout=httpx.Timeout(seconds, connect=5.0)
            )
        except _NEVER_HEARD as never:
            raise ChainUnavailable(
                chain="stacks relay", why=f"{type(never).__name__}: it cannot be reached"
            ) from never


def _settlement(answer: httpx.Response) -> Settled | NotSettled:
    """Read the answer to a settle call. A 500 may have happened after the broadcast."""
    body = _json(answer)
    if answer.status_code == 200:
        return read_settlement(body)
    if 400 <= answer.status_code < 500:
        return NotSettled(reason=_reason(body, answer.status_code), message=answer.text[:500])
    raise Unreadable(f"the relay answered {answer.status_code}")


def _reason(body: object, status: int) -> str:
    found = body.get("errorReason") or body.get("code") if isinstance(body, Mapping) else None
    if isinstance(found, str) and found in SETTLE_ERRORS:
        return found
    return "payment_identifier_conflict" if status == 409 else "invalid_payload"


def _status(answer: httpx.Response) -> Status:
    """Read a status. A 404 means that the relay has forgotten the payment or never knew it."""
    try:
        return _understood(read_status, answer)
    except ChainUnavailable:
        if answer.status_code != 404:
            raise
        return Status(state=PaymentState.NOT_FOUND, reason="expired")


def _understood(reader: Callable[[object], T], answer: httpx.Response) -> T:
    try:
        return reader(_json(answer))
    except Unreadable as nonsense:
        raise ChainUnavailable(chain="stacks relay", why=f"its answer is not usable: {nonsense}") from None


def _json(answer: httpx.Response) -> object:
    if len(answer.content) > MAX_ANSWER:
        raise Unreadable("the answer is too long")
    try:
        return answer.json()
    except ValueError:
        raise Unreadable("the answer is not JSON") from None


def _any_object(body: object) -> Json:
    if not isinstance(body, Mapping):
        raise Unreadable("the answer is not an object")
    return body

"""Signing and second tries as decisions, shared by the sync and the async line. No I/O.

A refused signature is repeated once when the server told us how to do better (its clock, its start); such a
request has taken no effect. Lost connections are retried only when the call may be repeated, and so is what
the platform has no time for now (429, 503), once the time that it names is over.

Answering a 402: a payer signs one of the offers, and the client repeats the call with it, once.

A payer is any function from x402's PaymentRequired document to the value of the PAYMENT-SIGNATURE header, or
to None if it will not pay that; `sandboxer.sdk.payers` has one for EVM wallets. A wallet without a key is
given one with its first paid answer, and the client signs with it from then on.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sandboxer.sdk.call import SAFE_METHODS, Answer, Call, problem_of
from sandboxer.sdk.confirmation import Confirmer, demand_of, demand_own, proof_headers
from sandboxer.sdk.credentials import NOBODY, Credentials, demand_private, new_nonce, signed_headers
from sandboxer.sdk.errors import ApiError, AuthenticationFailed

USER_AGENT = "sandboxer-python/0.1"
# Gateways between us and the platform; the platform itself never saw the request.
GATEWAY_STATUSES = frozenset({502, 504})
PAUSES_S = (0.1, 0.4)
# The platform cannot do it now, and may say in Retry-After when to come back.
BUSY_STATUSES = frozenset({429, 503})
# Who is told to wait for longer decides that for himself.
LONGEST_WAIT_S = 20.0
PAYMENT_NEEDED = 402
PAYMENT_REQUIRED = "payment-required"
PAYMENT_SIGNATURE = "payment-signature"
PAYMENT_RESPONSE = "payment-response"


@dataclass(slots=True)
class Tries:
    """What was tried so far for one call, and after how many seconds to try again."""

    signer: Signer
    call: Call[object]
    attempt: int = 0
    has_resigned: bool = False
    has_confirmed: bool = False
    has_paid: bool = False

    def after_lost(self) -> float | None:
        again = after_failure(self.call, self.attempt, status=None)
        self.attempt += 1
        return again

    def after_answer(self, status: int, headers: Mapping[str, str], content: bytes) -> float:
        """How to go on after an answer of 400 and above; raises the typed error when there is no way."""
        error = problem_of(Answer(status, headers, content))
        error.payment = required_by(status, headers)
        if (again := after_refusal(self.signer, error, has_resigned=self.has_resigned)) is not None:
            self.has_resigned = True
            return again
        if self._confirmed(error) or self._paid(status, headers):
            return 0.0
        again = after_failure(self.call, self.attempt, status=status, retry_after=headers.get("retry-after"))
        self.attempt += 1
        if again is None:
            raise error
        return again

    def _paid(self, status: int, headers: Mapping[str, str]) -> bool:
        """True if the call now carries a payment. It pays once; the same payment may be sent again."""
        required = required_by(status, headers)
        if required is None or self.signer.payer is None or self.has_paid:
            return False
        if (signed := self.signer.payer(required)) is None:
            return False
        self.has_paid = True
        paid = {**self.call.headers, PAYMENT_SIGNATURE: signed}
        self.call = replace(self.call, headers=paid, is_repeatable=True)
        return True

    def _confirmed(self, error: ApiError) -> bool:
        """True if the call now carries the second proof that was asked for. It is given once."""
        demand = demand_of(error)
        if demand is None or self.signer.confirm is None or self.has_confirmed:
            return False
        demand_own(demand, self.signer.url)
        if (proof := self.signer.confirm(demand)) is None:
            return False
        self.has_confirmed = True
        self.call = replace(self.call, headers={**self.call.headers, **proof_headers(demand, proof)})
        return True


Payer = Callable[[Mapping[str, Any]], str | None]


class Signer:
    """Holds the key and how far our clock is from the server's."""

    def __init__(
        self,
        credentials: Credentials,
        wall_clock: Callable[[], float] = time.time,
        confirm: Confirmer | None = None,
        payer: Payer | None = None,
    ) -> None:
        demand_private(credentials)
        self.credentials = credentials
        self.payer = payer
        self.confirm = confirm
        self._wall_clock = wall_clock
        self._offset_s = 0.0

    @property
    def url(self) -> str:
        """The platform's address, as it was named."""
        return self.credentials.url

    def head(self, method: str, target: str, content_sha256: str) -> dict[str, str]:
        if self.credentials.public_key in ("", NOBODY) and self.credentials.bearer_token is None:
            # A wallet that has no key yet: it is who pays. Or a stranger, where strangers are served.
            return {}
        return dict(
            signed_headers(
                self.credentials,
                method,
                target,
                content_sha256,
                timestamp=int(self._wall_clock() + self._offset_s),
                nonce=new_nonce(),
            )
        )

    def headers(self, call: Call[object]) -> dict[str, str]:
        head = self.head(call.method, call.target, call.body.sha256) if call.is_signed else {}
        head["user-agent"] = USER_AGENT
        if call.body.length or call.method not in SAFE_METHODS:
            head["content-length"] = str(call.body.length)
        return {**head, **call.headers}

    def learn_key(self, answer: Answer) -> bool:
        """A wallet that had no key signs with the one it was given from now on; says whether it was."""
        if self.credentials.public_key or (key := key_in(answer, self.credentials.url)) is None:
            return False
        self.credentials = key
        return True

    def learn(self, server_time: float) -> None:
        """Believe the server's clock from now on; our signature is checked against it, not against ours."""
        self._offset_s = server_time - self._wall_clock()


def after_refusal(signer: Signer, error: ApiError, *, has_resigned: bool) -> float | None:
    """Decides whether a refused signature deserves its one repetition."""
    if has_resigned or not isinstance(error, AuthenticationFailed):
        return None
    if error.reason == "clock_skew" and (server_time := _seconds(error.fact("server_time"))) is not None:
        signer.learn(server_time)
        return 0.0
    if error.reason == "before_start":
        # Timestamps are whole seconds: one signed in the second of the start looks older than it.
        return 1.0
    return None


def after_failure(
    call: Call[object], attempt: int, *, status: int | None, retry_after: str | None = None
) -> float | None:
    """Whether a lost connection (status None), a gateway's or a busy platform's answer may be tried again."""
    if not (call.method in SAFE_METHODS or call.is_repeatable) or attempt >= len(PAUSES_S):
        return None
    if status is None or status in GATEWAY_STATUSES:
        return PAUSES_S[attempt]
    if status not in BUSY_STATUSES or retry_after is None or not retry_after.isdecimal():
        return None
    return float(retry_after) if float(retry_after) <= LONGEST_WAIT_S else None


def _seconds(value: object) -> float | None:
    """Server time comes as unix seconds, or as RFC 3339."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    return None


def required_by(status: int, headers: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What a refusal asks to be paid; None if it asks for nothing that could be paid here."""
    header = headers.get(PAYMENT_REQUIRED)
    if status != PAYMENT_NEEDED or header is None:
        return None
    try:
        document = json.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("accepts") else None


def key_in(answer: Answer, url: str) -> Credentials | None:
    """The key that came with a paid answer: shown once, so it must not be lost."""
    if PAYMENT_RESPONSE not in answer.headers:
        return None
    try:
        key = json.loads(answer.content).get("key")
        return Credentials(str(key["public_key"]), str(key["secret_key"]), url)
    except (ValueError, AttributeError, KeyError, TypeError):
        return None

"""
What can go wrong for a client. Every class says whose fault it is and carries what the server said about it.

SdkError
├── ApiError                the server answered with a problem (RFC 9457)
│   ├── AuthenticationFailed    401: who are you?
│   ├── Refused                 4xx: change something and try again
│   │   ├── NotFound            404
│   │   ├── Conflict            409: the state or the Idempotency-Key does not allow it
│   │   │   └── Ambiguous       a name or the beginning of an id fits several things
│   │   └── InvalidRequest      400, 422
│   └── Unavailable             429, 5xx: theirs; try again later
├── Unreachable             no answer: not running, wrong address, connection lost, timeout
├── MissingCredentials      no key was given and none was found
├── ForeignText             what the platform wants signed is no text of its own; nothing was signed
├── WebhookRejected         (sdk.webhooks) a received webhook is not from the platform, or not fresh
└── BrokenAnswer            the server said something this client does not understand
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandboxer.wire.next_steps import Door, in_words_of, next_step


class SdkError(Exception):
    """Something went wrong on the way to the sandbox platform."""

    code = "sdk_error"
    # Whose fault it is: "caller", "platform" or "network".
    fault = "caller"
    next_step = "Look at the message."

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        if next_step is not None:
            self.next_step = next_step


class Unreachable(SdkError):
    """No answer from the platform."""

    code = "unreachable"
    fault = "network"
    next_step = (
        "Start the platform (`sandboxer up -d`; where it is installed `systemctl start sandboxer`), or name"
        " another address: SANDBOXER_URL."
    )


class ForeignText(SdkError):
    """What the platform wants signed is no text of its own for this client; nothing was signed."""

    code = "foreign_text"
    fault = "platform"
    next_step = (
        "Name the address that the platform has for itself (--url, SANDBOXER_URL). If it is this one already,"
        " do not trust it."
    )


class MissingCredentials(SdkError):
    """No key was given and none was found."""

    code = "missing_credentials"
    next_step = (
        "Start a platform here (`sandboxer up -d`), log in to one elsewhere (`sandboxer login URL`), or set"
        " SANDBOXER_STATE_DIR to its state folder, or SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY."
    )


class BrokenAnswer(SdkError):
    """The server said something this client does not understand."""

    code = "broken_answer"
    fault = "platform"
    next_step = "Check that the address is a sandboxer server of a matching version."


class ApiError(SdkError):
    """The server answered with a problem."""

    code = "api_error"

    def __init__(self, status: int, problem: Mapping[str, Any], request_id: str | None = None) -> None:
        detail = problem.get("detail") or problem.get("title") or f"HTTP {status}"
        self._detail, self._said = str(detail), str(problem.get("next_step", self.next_step))
        super().__init__(self.said(Door.SDK))
        self.status = status
        self.problem = problem
        self.request_id = request_id
        # What is to be paid for it (x402's PaymentRequired), where a payment would help.
        self.payment: Mapping[str, Any] | None = None
        self.code = str(problem.get("code", self.code))
        self.fault = str(problem.get("fault", "caller" if status < 500 else "platform"))
        self.next_step = self.next(Door.SDK)
        # Shown below the message where nobody catches it.
        self.add_note(self.next_step)

    def said(self, door: Door) -> str:
        """What the server said, in the words of a door: this client's, the command line's, or its own."""
        return in_words_of(door, self._detail)

    def next(self, door: Door) -> str:
        """What to do now, in the words of a door."""
        return next_step(door, self.code, self._said)

    @property
    def reason(self) -> str | None:
        """The finer cause, where the code alone is too coarse (`clock_skew`, `replayed`, …)."""
        found = self.fact("reason")
        return None if found is None else str(found)

    def fact(self, name: str) -> Any:
        """A fact of the problem, wherever the server put it."""
        facts = self.problem.get("facts")
        if isinstance(facts, Mapping) and name in facts:
            return facts[name]
        return self.problem.get(name)


class AuthenticationFailed(ApiError):
    """The signature or the key was not accepted."""


class Refused(ApiError):
    """The caller may change something and try again."""


class NotFound(Refused):
    """No such thing, or not yours."""


class Conflict(Refused):
    """The present state does not allow it."""


class Ambiguous(Conflict):
    """A name or the beginning of an id fits several things; `fits` lists them."""

    @property
    def fits(self) -> Sequence[Mapping[str, str]]:
        """Id and name of each."""
        return self.fact("fits") or ()


class InvalidRequest(Refused):
    """A field is wrong."""


class Unavailable(ApiError):
    """The platform cannot do it right now."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidRequest,
    401: AuthenticationFailed,
    404: NotFound,
    409: Conflict,
    422: InvalidRequest,
    429: Unavailable,
}


def api_error(status: int, problem: Mapping[str, Any], request_id: str | None = None) -> ApiError:
    """Returns the typed error of a problem document."""
    kind = _BY_STATUS.get(status, Refused if status < 500 else Unavailable)
    kind = Ambiguous if problem.get("code") == "ambiguous" else kind
    return kind(status, problem, request_id)

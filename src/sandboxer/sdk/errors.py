"""
What can go wrong for a client. Every class says whose fault it is and carries what the server said about it.

SdkError
├── ApiError                the server answered with a problem (RFC 9457)
│   ├── AuthenticationFailed    401: who are you?
│   ├── Refused                 4xx: change something and try again
│   │   ├── NotFound            404
│   │   ├── Conflict            409: the state or the Idempotency-Key does not allow it
│   │   └── InvalidRequest      400, 422
│   └── Unavailable             429, 5xx: theirs; try again later
├── Unreachable             no answer: not running, wrong address, connection lost, timeout
├── MissingCredentials      no key was given and none was found
├── WebhookRejected         (sdk.webhooks) a received webhook is not from the platform, or not fresh
└── BrokenAnswer            the server said something this client does not understand
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
    next_step = "Check that `sandboxer up` is running and that the address is right."


class MissingCredentials(SdkError):
    """No key was given and none was found."""

    code = "missing_credentials"
    next_step = (
        "Set SANDBOXER_STATE_DIR to the platform's state folder, or SANDBOXER_CREDENTIALS to a copy of its"
        " owner.json, or SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY."
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
        super().__init__(str(detail))
        self.status = status
        self.problem = problem
        self.request_id = request_id
        self.code = str(problem.get("code", self.code))
        self.fault = str(problem.get("fault", "caller" if status < 500 else "platform"))
        self.next_step = str(problem.get("next_step", self.next_step))

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
    kind = _BY_STATUS.get(status, Refused if status < 500 else Unavailable)
    return kind(status, problem, request_id)

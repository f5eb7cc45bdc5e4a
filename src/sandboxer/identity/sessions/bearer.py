"""Does a request come with a session instead of a signature? Read from its head, strictly."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxer.identity.sessions.tokens import HEADER
from sandboxer.kernel.errors import Unauthenticated

_BEARER = b"bearer "
_OF_SIGNATURES = frozenset({b"x-signature", b"x-nonce", b"x-content-sha256", b"x-api-key"})


def session_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token, if there is one; None if this request is to be judged by its signature."""
    tokens: list[str] = []
    is_signed = False
    count = 0
    for name, value in headers:
        is_signed = is_signed or name in _OF_SIGNATURES
        if name == b"authorization":
            count += 1
            if value[: len(_BEARER)].lower() == _BEARER:
                text = value[len(_BEARER) :].strip(b" ").decode("latin-1")
                tokens += [text] if text.startswith(HEADER) else []
    if not tokens:
        return None
    if count > 1 or is_signed:
        # Two readers could believe two different callers.
        raise Unauthenticated(
            why="the request carries a session and something else that names a caller",
            reason="two_callers",
            hint="Send a session token, or sign the request; not both.",
        )
    return tokens[0]

"""API keys as clients of E2B demand them: `e2b_` and hexadecimal digits.

Such a key is a bearer token in another spelling, so it is made, ends and is replaced with that token.
"""

from __future__ import annotations

PREFIX = "e2b_"
_BEARER = "sk_"


def api_key_of(bearer_token: str) -> str:
    """Returns the API key that stands for a bearer token."""
    return PREFIX + bearer_token.removeprefix(_BEARER).encode().hex()


def bearer_of(api_key: str) -> str:
    """Returns the bearer token that an API key stands for; what is no such key comes back as it is."""
    if not api_key.startswith(PREFIX):
        return api_key
    try:
        return _BEARER + bytes.fromhex(api_key.removeprefix(PREFIX)).decode("ascii")
    except ValueError:
        return api_key

"""What clients of E2B say and hear: its API keys, the models of its two APIs, and the table of what they can
ask for. Their names and words are E2B's.
"""

from __future__ import annotations

# Below this path, and below the domain of ports at this name, is E2B's API.
ROOT = "/e2b"
API_LABEL = "api"
# The port of the daemon that its clients expect inside a sandbox.
ENVD_PORT = 49983
# And of the code interpreter.
CODE_PORT = 49999
# An API key as its clients demand it, with hexadecimal digits behind this, is a bearer token in another
# spelling: it is made, ends and is replaced with that token.
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

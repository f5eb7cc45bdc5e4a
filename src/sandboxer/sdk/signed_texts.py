"""The texts of a platform that a client signs: three forms, each for the address at which the client asks.

Whoever has a wallet's signature of a text has its word. So a platform that shows another text than these, a
payment, say, or the sign-in that a third platform handed out, gets no signature for it.
"""

from __future__ import annotations

import re
from enum import Enum
from urllib.parse import urlsplit

# A platform says five minutes; the rest is for a clock that is late.
LONGEST_LIFE_S = 3600
_PORTS = {"http": ":80", "https": ":443"}


class Form(Enum):
    """The first line of a text, and the names of the lines after the empty one."""

    SIGN_IN = ("Sign this message to authenticate with sandboxer.", "Domain", "Nonce", "Expires")
    LINK = (
        "Sign this message to link this wallet to an account of sandboxer.",
        *("Domain", "Account", "Nonce", "Expires"),
    )
    CONFIRM = (
        "Sign this message to confirm an action with sandboxer.",
        *("Domain", "Account", "Action", "Resource", "Challenge", "Expires"),
    )


def fault_of(text: str, form: Form, *, nonce: str, now: float, url: str | None) -> str | None:
    """Says why a text must not be signed that whoever answers at `url` shows; None: it may be.

    `nonce` is what it was handed out with. Without a `url` it may be for any address.
    """
    first, *names = form.value
    lines = "".join(rf"\n{name}: (?P<{name}>[^\x00-\x1f\x7f]*)" for name in names)
    found = re.fullmatch(re.escape(first) + r"\n" + lines, text)
    if found is None:
        return f"what the platform wants signed is not `{first} …`, each line as it has to be"
    said = found.groupdict()
    if url is not None and _domain(said["Domain"], url) != _domain(urlsplit(url).netloc, url):
        return f"what the platform wants signed is for {said['Domain']}, and it was asked at {url}"
    if nonce not in (said.get("Nonce"), said.get("Challenge")):
        return "what the platform wants signed has another nonce than it said"
    if re.fullmatch(r"[0-9]{1,12}", said["Expires"]) is None or int(said["Expires"]) > now + LONGEST_LIFE_S:
        return "what the platform wants signed is good for more than an hour, by this machine's clock"
    return None


def _domain(netloc: str, url: str) -> str:
    """Returns host and port as they are compared; a socket has none, and no text is for it."""
    return netloc.lower().removesuffix(_PORTS.get(urlsplit(url).scheme, "")) or url

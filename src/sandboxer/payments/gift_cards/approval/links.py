"""The link that approves or denies one redemption: signed, until a moment, good for one answer. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime

from sandboxer.kernel.errors import Conflict, NotFound

LINK_INFO = "gift-card-approval-v1"
PATH = "/v1/gift-cards/approvals"
_FORM = re.compile(r"(rdm_[0-9a-hjkmnp-tv-z]{26})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


def make_token(key: bytes, redemption: str, expires_at: datetime) -> str:
    head = f"{redemption}.{int(expires_at.timestamp())}"
    return f"{head}.{_mac(key, head)}"


def read_token(key: bytes, token: str, *, now: datetime) -> str:
    """The redemption it is about. Raises NotFound for one that we did not make, Conflict for an old one."""
    found = _FORM.fullmatch(token)
    head = token.rpartition(".")[0]
    if found is None or not hmac.compare_digest(_mac(key, head), found[3]):
        raise NotFound(what="approval link", id="(not shown)")
    if datetime.fromtimestamp(int(found[2]), UTC) <= now:
        raise Conflict(why="the time to answer is over", reason="link_expired")
    return found[1]


def _mac(key: bytes, head: str) -> str:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

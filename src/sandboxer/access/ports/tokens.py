"""What opens a private port without a key: tokens in links, and the cookie that a browser gets for one.

Both name a preview and carry a MAC over everything that the preview is for. They are no secret store: whether
the preview still stands is looked up each time, so that a revoked one opens nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime

_TOKEN = re.compile(r"(prv_[0-9a-hjkmnp-tv-z]{26})\.([A-Za-z0-9_-]{43})")
COOKIE = "sandboxer_preview"
QUERY = "sandboxer_token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    id: str
    sandbox_id: str
    account: str
    port: int
    # Open to everyone, no token needed.
    is_public: bool
    # Its link works once; whoever used it goes on by cookie.
    is_one_time: bool
    wakes: bool
    hold_s: int
    created_at: datetime
    # None: until revoked.
    expires_at: datetime | None
    used_at: datetime | None = None
    revoked_at: datetime | None = None

    def stands(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Minter:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def link_token(self, preview: Preview) -> str:
        return self._token(preview, "link")

    def cookie_token(self, preview: Preview) -> str:
        return self._token(preview, "cookie")

    def is_link_token(self, token: str, preview: Preview) -> bool:
        return hmac.compare_digest(token.encode(), self.link_token(preview).encode())

    def is_cookie_token(self, token: str, preview: Preview) -> bool:
        return hmac.compare_digest(token.encode(), self.cookie_token(preview).encode())

    def _token(self, preview: Preview, use: str) -> str:
        until = "" if preview.expires_at is None else str(int(preview.expires_at.timestamp()))
        said = "\n".join((use, preview.id, preview.account, preview.sandbox_id, str(preview.port), until))
        mac = hmac.new(self._key, said.encode(), hashlib.sha256).digest()
        return f"{preview.id}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def preview_id_of(token: str) -> str | None:
    """The preview that a token claims to be for; None: it is no token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1]

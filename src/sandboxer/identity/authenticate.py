"""Says who sent a request, from its head, before a byte of its body is read.

Order matters: cheap checks first; the signature before the nonce, so that strangers cannot burn nonces or
fill the repository; and an unknown key costs the same HMAC as a wrong signature.

What a signature covers, byte for byte, is the server's side of what every client repeats. v2 is unambiguous:
of its parts only the path may hold a colon, and it is followed by 64 hex digits. v1 is as existing clients do
it, and is not: see `v1_is_ambiguous`. The paper's form puts its parts end to end: a method has no slash, and
from the end come 64 hex digits and the 10 digits of the time. None can be taken for another: v2 starts with
"v2:", v1 with digits, the paper's with the letters of a method.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial

from sandboxer.identity.keys import Caller, Key, Keys
from sandboxer.identity.nonces import WINDOW_S, NonceRepository
from sandboxer.kernel.errors import TooLarge, Unauthenticated, Unavailable
from sandboxer.kernel.values import value_class

# A v1 signature covers the raw body, which therefore has to be held in memory.
MAX_V1_BODY = 1024 * 1024
_TIMESTAMP = re.compile(rb"[1-9][0-9]{0,11}")
_NONCE = re.compile(rb"[A-Za-z0-9_-]{16,128}")
_HEX_SHA256 = re.compile(rb"[0-9a-f]{64}")
_ANY_HEX_SHA256 = re.compile(rb"[0-9A-Fa-f]{64}")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([!-~]{1,256})")
_API_KEY = re.compile(rb"[!-~]{1,256}")
_HEADERS = frozenset(
    {b"authorization", b"x-api-key", b"x-timestamp", b"x-nonce", b"x-content-sha256", b"x-signature"}
)
_NOBODY = b"sbx-sk-" + b"0" * 52
_HOW = (
    "Send `Authorization: Bearer sk_…` (`sandboxer key bearer` prints such a token), or sign the request with"
    " Authorization, X-Timestamp, X-Nonce, X-Content-SHA256 and X-Signature; see docs/reference/auth.md."
)
_V1_FORM = "{timestamp}:{METHOD}:{path with query}:{raw body}"
_PAPER_FORM = "{METHOD}{path with query}{timestamp}{hex sha256 of body}"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
RawHeaders = Iterable[tuple[bytes, bytes]]


@value_class
class Verdict:
    """Names the caller, and what the body must still prove before it may take effect."""

    caller: Caller
    # v2: the hash the caller signed. Feed the body to `body_check()` while it streams.
    content_sha256: str | None
    # v1: everything hangs on the body: call `verify` with all of it.
    pending_v1: PendingV1 | None = field(default=None, repr=False)

    @property
    def needs_body(self) -> bool:
        """Says whether nothing is proven before `verify` was called with the whole body."""
        return self.pending_v1 is not None

    def body_check(self) -> BodyCheck:
        assert self.content_sha256 is not None, "a v1 request is checked as a whole"
        return BodyCheck(self.content_sha256)

    def verify(self, body: bytes) -> None:
        """Checks a body that is there as a whole."""
        if self.pending_v1 is not None:
            self.pending_v1.verify(body)
            return
        check = self.body_check()
        check.update(body)
        check.finish()


@value_class
class PendingV1:
    key: Key | None = field(repr=False)
    timestamp: str
    method: str
    path_with_query: str
    signature: str = field(repr=False)
    # The paper's way to put the same parts together.
    is_paper: bool
    now: datetime

    def verify(self, body: bytes) -> None:
        if len(body) > MAX_V1_BODY:
            raise TooLarge(what="a body signed with v1", limit=f"{MAX_V1_BODY} bytes")
        canonical, form = (canonical_paper, _PAPER_FORM) if self.is_paper else (canonical_v1, _V1_FORM)
        canonicals = [
            canonical(self.timestamp, self.method, path, body) for path in spellings(self.path_with_query)
        ]
        if body == b"{}" and not self.is_paper:
            # Some clients sign nothing where they send an object without anything in it: it says the same.
            canonicals += [
                canonical_v1(self.timestamp, self.method, path, b"")
                for path in spellings(self.path_with_query)
            ]
        _refuse_unfit(_check_signature(self.key, canonicals, self.signature, form), self.now)


class BodyCheck:
    """Hashes a body as it passes. `finish` at its end, before the body takes effect."""

    __slots__ = ("_expected", "_hash")

    def __init__(self, expected_sha256: str) -> None:
        self._expected = expected_sha256
        self._hash = hashlib.sha256()

    def update(self, chunk: bytes) -> None:
        self._hash.update(chunk)

    def finish(self) -> None:
        if not matches(self._expected, self._hash.hexdigest()):
            raise _refusal(
                "body_mismatch",
                "the body is not the one that was signed",
                "X-Content-SHA256 is the hex SHA-256 of the body as sent; for no body, of zero bytes.",
            )


class Authenticator:
    def __init__(
        self,
        keys: Keys,
        nonces: NonceRepository,
        *,
        wall_ahead: Callable[[], timedelta | None] = lambda: None,
    ) -> None:
        self._keys = keys
        self._nonces = nonces
        # By how much the host's wall clock is ahead of the server's time, while the two do not agree.
        self._wall_ahead = wall_ahead

    async def check_head(
        self, headers: RawHeaders, method: str, path_with_query: str, now: datetime
    ) -> Verdict:
        """Returns the caller. Raises Unauthenticated with a `reason` and a `hint` that an agent can act on.

        `headers` are the raw pairs as received (names in lower case), `path_with_query` the target as sent.
        """
        if not (path_with_query.isascii() and method.isascii()):
            raise _refusal("bad_signature", "the URL holds raw bytes beyond ASCII", "Percent-encode the URL.")
        head = _collect(headers)
        public_key = _public_key(head)
        timestamp = _timestamp(head, now, self._wall_ahead())
        signature = _required(head, b"x-signature", _HEX_SHA256, "64 lower-case hex digits", "bad_signature")
        if b"x-nonce" not in head and b"x-content-sha256" not in head:
            pending = partial(
                PendingV1,
                timestamp=str(timestamp),
                method=method,
                path_with_query=path_with_query,
                signature=signature,
                is_paper=b"x-api-key" in head,
                now=now,
            )
            return await self._check_v1(public_key, pending)
        nonce = _required(head, b"x-nonce", _NONCE, "16 to 128 of [A-Za-z0-9_-]", "bad_nonce")
        sha256 = _required(head, b"x-content-sha256", _ANY_HEX_SHA256, "64 hex digits", "missing")
        self._nonces.refuse_forgotten(timestamp, now)
        key = await self._keys.lookup(public_key)
        form = "v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}"
        canonicals = [
            canonical_v2(str(timestamp), nonce, method, path, sha256) for path in spellings(path_with_query)
        ]
        known = _check_signature(key, canonicals, signature, form)
        _refuse_unfit(known, now)
        self._nonces.use(public_key, nonce, timestamp, now)
        return Verdict(caller=known.caller, content_sha256=sha256.lower())

    async def _check_v1(self, public_key: str, pending: Callable[..., PendingV1]) -> Verdict:
        key = await self._keys.lookup(public_key)
        made = pending(key=key)
        if key is None:
            # Refused here, not after the body: a stranger must not make us hold a megabyte.
            _check_signature(None, [b""], made.signature, "")
        assert key is not None
        if not key.caller.accepts_v1:
            raise _refusal(
                "v1_not_allowed",
                "this key takes signatures of version 2 only",
                "Add X-Nonce and X-Content-SHA256 and sign v2; see docs/reference/auth.md.",
            )
        if not made.is_paper and v1_is_ambiguous(made.path_with_query):
            raise _refusal(
                "bad_signature",
                "with a bare ':' in path or query a v1 signature does not say where the body begins",
                "Write it as %3A in the URL, or sign v2.",
            )
        return Verdict(caller=key.caller, content_sha256=None, pending_v1=made)


def _collect(headers: RawHeaders) -> dict[bytes, bytes]:
    """Collects our headers. Refuses one that is given twice: two readers could believe two different
    values.
    """
    head: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _HEADERS:
            if name in head:
                raise _refusal("missing", f"{name.decode()} was sent twice", "Send each header once.")
            head[name] = value
    return head


def _public_key(head: dict[bytes, bytes]) -> str:
    if b"x-api-key" in head:
        if b"authorization" in head:
            raise _refusal("missing", "Authorization and X-API-Key both name a key", "Send one of them.")
        if _API_KEY.fullmatch(head[b"x-api-key"]) is None:
            raise _refusal("missing", "X-API-Key is not a public key", _HOW)
        return head[b"x-api-key"].decode("ascii")
    if b"authorization" not in head:
        raise unsigned()
    if (match := _BEARER.fullmatch(head[b"authorization"])) is None:
        raise _refusal("missing", "Authorization is neither `Bearer sk_…` nor `Bearer sbx-pk-…`", _HOW)
    return match[1].decode("ascii")


def _timestamp(head: dict[bytes, bytes], now: datetime, wall_ahead: timedelta | None) -> int:
    timestamp = int(_required(head, b"x-timestamp", _TIMESTAMP, "unix seconds, digits only", "missing"))
    server_time = int(now.timestamp())
    skew = timestamp - server_time
    if abs(skew) > WINDOW_S and wall_ahead is not None:
        _refuse_for_our_clock(skew, server_time, int(wall_ahead.total_seconds()))
    if abs(skew) > WINDOW_S:
        side = "ahead of" if skew > 0 else "behind"
        raise Unauthenticated(
            why=f"X-Timestamp is {abs(skew)} s {side} this server's clock; {WINDOW_S} s are allowed",
            reason="clock_skew",
            server_time=server_time,
            skew_s=skew,
            hint="Set the clock, or add the difference to server_time to your timestamps, and sign again.",
        )
    return timestamp


def _refuse_for_our_clock(skew: int, server_time: int, wall_ahead_s: int) -> None:
    """Refuses a timestamp after this host's clock was set. The platform is at fault if the caller agrees
    with our wall clock.
    """
    if abs(skew - wall_ahead_s) <= WINDOW_S:
        raise Unavailable(
            why=f"this server's clock was set by {wall_ahead_s:+d} s and is not believed yet",
            reason="server_clock",
            server_time=server_time,
            skew_s=skew,
            retry_after_s=WINDOW_S,
            hint="This is not your fault. Sign with server_time for now, or try again in some minutes.",
        )


def _required(
    head: dict[bytes, bytes], name: bytes, form: re.Pattern[bytes], wanted: str, reason: str
) -> str:
    if (value := head.get(name)) is None:
        raise _refusal(
            "missing", f"the token is no `sk_…`, and {name.decode()}, which signing needs, is missing", _HOW
        )
    if form.fullmatch(value) is None:
        raise _refusal(reason, f"{name.decode()} is not {wanted}", _HOW)
    return value.decode("ascii")


def _check_signature(key: Key | None, canonicals: Sequence[bytes], signature: str, form: str) -> Key:
    secret = _NOBODY if key is None else key.secret
    is_right = any(matches(sign(secret, canonical), signature) for canonical in canonicals)
    if key is None:
        raise _refusal(
            "unknown_key",
            "no such key, or it was revoked",
            "Ask the platform's owner for a key (POST /v1/keys).",
        )
    if not is_right:
        raise _refusal("bad_signature", "the signature does not match", f"Sign `{form}` with the secret key.")
    return key


def _refuse_unfit(key: Key, now: datetime) -> None:
    """Refuses a key that may not sign. Called after the signature was checked: only the holder of the
    secret is told why.
    """
    match key.why_not(now):
        case "suspended":
            raise _refusal(
                "suspended",
                f"this key is suspended: {key.suspended_why}",
                "Ask the operator; nothing was deleted.",
            )
        case "expired":
            assert key.expires_at is not None
            raise _refusal(
                "expired",
                f"this key expired at {key.expires_at.isoformat()}",
                "Extend it by paying, or use another key of the account.",
            )


def unsigned() -> Unauthenticated:
    """Returns the error for a request without any credentials."""
    return _refusal("missing", "there is no Authorization header", _HOW)


def _refusal(reason: str, why: str, hint: str) -> Unauthenticated:
    return Unauthenticated(why=why, reason=reason, hint=hint)


def spellings(path_with_query: str) -> Sequence[str]:
    """Returns what a caller may have signed: with an empty query, the path with or without its question
    mark. Servers and proxies drop a bare one, clients keep it; both are the same request.
    """
    path, _, query = path_with_query.partition("?")
    return (path_with_query,) if query else (path, path + "?")


def canonical_v2(timestamp: str, nonce: str, method: str, path_with_query: str, content_sha256: str) -> bytes:
    return f"v2:{timestamp}:{nonce}:{method}:{path_with_query}:{content_sha256}".encode()


def canonical_v1(timestamp: str, method: str, path_with_query: str, body: bytes) -> bytes:
    return f"{timestamp}:{method}:{path_with_query}:".encode() + body


def canonical_paper(timestamp: str, method: str, path_with_query: str, body: bytes) -> bytes:
    return f"{method}{path_with_query}{timestamp}{hashlib.sha256(body).hexdigest()}".encode()


def v1_is_ambiguous(path_with_query: str) -> bool:
    """Says whether a v1 signature would not tell where the path ends: with a bare colon in it, a captured
    request could be sent with another split of path and body.
    """
    return ":" in path_with_query


def sign(secret: bytes, canonical: bytes) -> str:
    """Returns the HMAC-SHA256 as lower-case hex."""
    return hmac.digest(secret, canonical, "sha256").hex()


def matches(expected: str, given: str) -> bool:
    """Compares in constant time, for any text: given `str`, `compare_digest` refuses all but ASCII."""
    return hmac.compare_digest(
        expected.encode("utf-8", "surrogatepass"), given.encode("utf-8", "surrogatepass")
    )

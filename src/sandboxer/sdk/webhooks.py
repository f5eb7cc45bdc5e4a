"""For the receiving side: is a webhook really from the platform, fresh and unchanged?

    from sandboxer.sdk.webhooks import WebhookRejected, verify

    message = verify(secret, request.headers, request.body)      # raises WebhookRejected
    if not seen_before(message["id"]):                           # told at least once: skip what you know
        ...

Any library for Standard Webhooks does the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sandboxer.sdk.errors import SdkError

TOLERANCE_S = 300
_PREFIX = "whsec_"


class WebhookRejected(SdkError):
    """This request is not a webhook that the holder of the secret sent just now."""

    code = "webhook_rejected"
    next_step = "Answer 401 and do nothing with its content; check that the secret is the newest one."


def verify(
    secret: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> dict[str, Any]:
    """The message, if one of the secrets signed exactly this body within the tolerance.

    `body` must be the bytes as they came: parsed and written anew, they are others. Header names may be in
    any case. Raises WebhookRejected.
    """
    given = {name.lower(): value for name, value in headers.items()}
    id, stamp, signed = (
        given.get(f"webhook-{name}", "").strip() for name in ("id", "timestamp", "signature")
    )
    if not (id and stamp and signed):
        raise WebhookRejected("webhook-id, webhook-timestamp or webhook-signature is missing")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise WebhookRejected("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance_s:
        raise WebhookRejected(f"webhook-timestamp is more than {tolerance_s:g} s away from this clock")
    raw = body.encode() if isinstance(body, str) else bytes(body)
    content = f"{id}.{stamp}.".encode() + raw
    secrets = [secret] if isinstance(secret, str) else list(secret)
    expected = [hmac.new(_key(one), content, hashlib.sha256).digest() for one in secrets]
    if not _is_signed(signed, expected):
        raise WebhookRejected("no signature matches: another secret, or the body was changed")
    try:
        message = json.loads(raw)
    except ValueError:
        raise WebhookRejected("the body is signed, but not JSON") from None
    if not isinstance(message, dict):
        raise WebhookRejected("the body is signed, but not a JSON object")
    return message


def _is_signed(signed: str, expected: Sequence[bytes]) -> bool:
    is_good = False
    for word in signed.split(" ")[:16]:
        version, _, text = word.partition(",")
        if version != "v1":
            continue
        try:
            found = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        for one in expected:
            # No early way out: how long it takes must not tell which one matched.
            is_good |= hmac.compare_digest(found, one)
    return is_good


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise WebhookRejected("the secret given to verify is not whsec_ and base64") from None

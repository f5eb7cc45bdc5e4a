"""What an agent has outside of every sandbox: a key that signs, wallets, and a folder of runs. Not packed for
children.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sandboxer.sdk.agent.acts import Surroundings
from sandboxer.sdk.agent.line import Line, Signing
from sandboxer.sdk.agent.loop import HeldElsewhere, StateFile, UnreadableState, packed
from sandboxer.sdk.agent.payment import CoinWallet, WalletLocked, X402Wallet
from sandboxer.sdk.agent.progress import Progress
from sandboxer.sdk.credentials import (
    Credentials,
    demand_private,
    new_nonce,
    signed_headers,
    socket_of,
    trust_for,
)

# So long the file of a run that is over is kept in the folder of runs: it holds secrets.
KEPT_S = 7 * 86400


class TextSigner(Protocol):
    """Signs texts as a wallet does (EIP-191)."""

    def __call__(self, text: str) -> str: ...


class PayerWallet:
    """A payer of `sdk.payers` (or any other) as the loop wants it."""

    def __init__(self, payer: Callable[[Mapping[str, Any]], str | None], sign: TextSigner) -> None:
        self._payer = payer
        self.sign_text = sign

    def sign_payment(self, required: Mapping[str, Any]) -> str:
        if (signed := self._payer(required)) is None:
            raise WalletLocked("the wallet's caps cover none of the offers")
        return signed


def surroundings(
    credentials: Credentials,
    *,
    wallet: X402Wallet | None = None,
    coins: CoinWallet | None = None,
    now: Callable[[], float] = time.time,
) -> Surroundings:
    """Returns what a run has that starts with this key, or, if it is empty, with a way to pay.

    Raises MissingCredentials for a bearer token that others could read.
    """
    demand_private(credentials)
    found = trust_for(credentials.url)
    trust = found if isinstance(found, ssl.SSLContext) else None

    def line(progress: Progress) -> Line:
        place = progress.place
        if place is not None and place.socket is not None:
            return Line("http://localhost", socket_path=place.socket, is_inside=True)
        return Line(
            credentials.url,
            socket_path=socket_of(credentials.url),
            signing=_signing(credentials, progress, now),
            trust=trust,
            now=now,
        )

    return Surroundings(line=line, archive=packed, now=now, wallet=wallet, coins=coins)


def _signing(credentials: Credentials, progress: Progress, now: Callable[[], float]) -> Signing | None:
    key = credentials
    if progress.key is not None:
        mine = progress.key
        key = Credentials(mine.public_key, mine.secret_key, credentials.url, mine.session)
    if not key.public_key and key.bearer_token is None:
        return None

    def sign(method: str, target: str, content_sha256: str) -> Mapping[str, str]:
        timestamp = int(now() + progress.clock_offset_s)
        return signed_headers(key, method, target, content_sha256, timestamp=timestamp, nonce=new_nonce())

    return sign


def forget_ended(folder: Path, *, now: float) -> None:
    """Removes the files of runs that were over for `KEPT_S`, and locks without one. A run that waits for
    somebody may have paid already: its file stays.
    """
    for path in folder.glob("*.json"):
        with suppress(HeldElsewhere, UnreadableState, OSError):
            if now - path.stat().st_mtime < KEPT_S:
                continue
            file = StateFile(path)
            with file.alone():
                known = file.read()
                if known is not None and known.ended_at is not None and now - known.ended_at >= KEPT_S:
                    path.unlink()
    for lock in folder.glob("*.json.lock"):
        with suppress(OSError):
            if not lock.with_suffix("").exists() and now - lock.stat().st_mtime >= KEPT_S:
                lock.unlink()

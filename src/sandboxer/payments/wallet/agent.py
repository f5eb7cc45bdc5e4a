"""An agent's wallet: a seed, caps and a journal of what was spent, all in one encrypted file.

The journal is written before anything is sent. A crash in between leaves a payment counted that never went,
which costs some of the day's cap; the other order could spend past it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, Conflict, InvalidRequest
from sandboxer.payments.assets import asset_named
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.wallet.caps import DAY, Cap, Spent, check_spend
from sandboxer.payments.wallet.outputs import Prepared
from sandboxer.payments.wallet.seeds import Seed, new_seed
from sandboxer.payments.wallet.vault import Vault, create_vault, open_vault

_LEAST_PASSWORD = 8


@dataclass(frozen=True)
class Content:
    seed: Seed
    caps: Mapping[str, Cap]
    journal: tuple[Spent, ...]


class AgentWallet:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.content = _read(vault.content)

    @property
    def seed(self) -> Seed:
        return self.content.seed

    @property
    def caps(self) -> Mapping[str, Cap]:
        return self.content.caps

    def set_cap(self, asset: str, cap: Cap) -> None:
        code = asset_named(asset).code
        with self._changing() as content:
            self._write(replace(content, caps={**content.caps, code: cap}))

    def charge(self, id: str, asset: str, amount: int, *, now: datetime) -> None:
        """Count a payment against the caps, or raise `Forbidden`. `id` is chosen by the caller (a txid, a
        nonce): the same again counts once."""
        with self._changing() as content:
            if any(each.id == id for each in content.journal):
                return
            check_spend(content.caps.get(asset), content.journal, asset, amount, now=now)
            recent = tuple(each for each in content.journal if each.at > now - 7 * DAY)
            self._write(replace(content, journal=(*recent, Spent(id, asset, amount, now))))

    def release(self, id: str) -> None:
        """The payment certainly did not happen: the network refused it."""
        with self._changing() as content:
            kept = tuple(each for each in content.journal if each.id != id)
            self._write(replace(content, journal=kept))

    @contextmanager
    def _changing(self) -> Iterator[Content]:
        """One process at a time, starting from what is on disk: who shares a wallet shares its caps."""
        lock = self._vault.path.with_suffix(self._vault.path.suffix + ".lock")
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self._vault.reload()
            self.content = _read(self._vault.content)
            yield self.content

    def _write(self, content: Content) -> None:
        self._vault.replace(_written(content))
        self.content = content


def create_wallet(path: Path, password: str, *, words: str | None = None) -> AgentWallet:
    if len(password) < _LEAST_PASSWORD:
        raise InvalidRequest(field="password", why=f"at least {_LEAST_PASSWORD} characters")
    content = Content(Seed(" ".join(words.split())) if words else new_seed(), {}, ())
    return AgentWallet(create_vault(path, password, _written(content)))


def open_wallet(path: Path, password: str) -> AgentWallet:
    return AgentWallet(open_vault(path, password))


class Preparing(Protocol):
    """A spender whose transaction can be written down before it goes out."""

    code: str

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared: ...
    async def broadcast(self, prepared: Prepared) -> str: ...
    async def depth(self, txid: str) -> int | None: ...
    async def balance(self) -> int: ...
    def learn(self, index: int) -> None: ...


class CappedSpender:
    """`Spender` that asks the wallet first. Fees count."""

    def __init__(self, wallet: AgentWallet, spender: Preparing, clock: Clock) -> None:
        self._wallet = wallet
        self._spender = spender
        self._clock = clock

    async def balance(self) -> int:
        return await self._spender.balance()

    async def send(self, address: str, amount: int, *, spend: Deposit | None = None) -> str:
        prepared = await self._spender.prepare(address, amount, spend=spend)
        total = amount + prepared.fee
        self._wallet.charge(prepared.txid, self._spender.code, total, now=self._clock.now())
        try:
            return await self._spender.broadcast(prepared)
        except Conflict:
            self._wallet.release(prepared.txid)
            raise


def _written(content: Content) -> bytes:
    return json.dumps(
        {
            "words": content.seed.words,
            "caps": {code: [cap.per_payment, cap.per_day] for code, cap in content.caps.items()},
            "journal": [[each.id, each.asset, each.amount, each.at.isoformat()] for each in content.journal],
        }
    ).encode()


def _read(raw: bytes) -> Content:
    try:
        parts: dict[str, Any] = json.loads(raw)
        return Content(
            Seed(parts["words"]),
            {code: Cap(*pair) for code, pair in parts["caps"].items()},
            tuple(
                Spent(id, asset, amount, datetime.fromisoformat(at))
                for id, asset, amount, at in parts["journal"]
            ),
        )
    except (ValueError, KeyError, TypeError):
        raise Broken(why="the wallet opened, but what is in it cannot be read") from None

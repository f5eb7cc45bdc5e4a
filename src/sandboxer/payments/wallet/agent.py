"""An agent's wallet is a seed, caps and a journal of what was spent, all in one encrypted file.

The journal is written before anything is sent: a crash in between counts a payment that was not sent, while
the other order could spend past a cap. The file is encrypted under a password (scrypt, AES-256-GCM), has mode
0600, and is complete or absent after any crash. A wallet and a node together make a spender.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sandboxer.identity.seal import create_private_file, replace_private_file
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, Conflict, Forbidden, InvalidRequest, NotFound
from sandboxer.payments.chains.configuration import (
    DAY,
    Cap,
    ChainPlan,
    Source,
    Spent,
    check_spend,
    login_of,
    open_chain,
)
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.chains.monero import MoneroWallet
from sandboxer.payments.rates import asset_named
from sandboxer.payments.wallet.spenders import MoneroSpender, OutputSpender, Prepared, Seed, new_seed

_LEAST_PASSWORD = 8
_VERSION = 1
# 64 MB and a fifth of a second for each guess.
_N, _R, _P = 2**16, 8, 1
_MEMORY = 192 * 2**20
# What a file may ask of us before its password is known to be right.
_MOST_N = 2**20


@dataclass(frozen=True)
class Content:
    seed: Seed
    caps: Mapping[str, Cap]
    journal: tuple[Spent, ...]


class Preparing(Protocol):
    """A spender whose transaction can be recorded before it is broadcast."""

    code: str

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared: ...
    async def broadcast(self, prepared: Prepared) -> str: ...
    async def depth(self, txid: str) -> int | None: ...
    async def balance(self) -> int: ...
    def learn(self, index: int) -> None: ...


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
        """Remove a payment from the journal, because the network refused it."""
        with self._changing() as content:
            kept = tuple(each for each in content.journal if each.id != id)
            self._write(replace(content, journal=kept))

    @contextmanager
    def _changing(self) -> Iterator[Content]:
        """Lock the file and reload it, so that processes that share a wallet share its caps."""
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


class CappedSpender:
    """A spender that counts each payment, fees included, against the wallet's caps first."""

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


@asynccontextmanager
async def open_payer(wallet: AgentWallet, plan: ChainPlan, clock: Clock) -> AsyncIterator[CappedSpender]:
    """Spends from the wallet's account on the plan's chain, within the wallet's caps."""
    async with open_spender(wallet, plan) as spender:
        yield CappedSpender(wallet, spender, clock)


@asynccontextmanager
async def open_spender(wallet: AgentWallet, plan: ChainPlan) -> AsyncIterator[Preparing]:
    """Open a spender without caps; the caller counts what it spends.

    The plan's `xpub` is not asked: the wallet's own seed decides. Monero's keys are in its wallet server;
    only the caps are ours there.
    """
    if plan.source is Source.WALLET_RPC:
        user, password = login_of(plan)
        monero = MoneroSpender(
            plan.url, user=user or None, password=password, account=plan.account, network=plan.network
        )
        try:
            yield monero
        finally:
            await monero.close()
        return
    key = wallet.seed.account(plan.code, plan.network)
    chain = open_chain(replace(plan, xpub=key.xpub(), script=key.kind.value))
    assert not isinstance(chain, MoneroWallet), "its source is a wallet server"
    try:
        yield OutputSpender(chain, key)
    finally:
        await chain.close()


class Vault:
    """An open vault. The derived key is kept, not the password, so saving again is quick."""

    def __init__(self, path: Path, header: dict[str, object], key: bytes, content: bytes) -> None:
        self.path = path
        self.content = content
        self._header = header
        self._cipher = AESGCM(key)

    def reload(self) -> None:
        """Read the file again, because another process may have written it."""
        header, sealed = _parts(self.path)
        if header != self._header:
            why = f"{self.path} was put under another password meanwhile"
            raise Conflict(why=why, hint="Open it again, with that password.")
        self.content = _opened(self._cipher, header, sealed)

    def replace(self, content: bytes) -> None:
        replace_private_file(self.path, _sealed(self._header, self._cipher, content))
        self.content = content


def create_vault(path: Path, password: str, content: bytes) -> Vault:
    header: dict[str, object] = {
        "version": _VERSION,
        "kdf": "scrypt",
        "n": _N,
        "r": _R,
        "p": _P,
        "salt": secrets.token_hex(16),
    }
    key = _derived(header, password, path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not create_private_file(path, _sealed(header, AESGCM(key), content)):
        raise Conflict(why=f"there is a wallet at {path} already", hint="Name another file.")
    return Vault(path, header, key, content)


def open_vault(path: Path, password: str) -> Vault:
    header, sealed = _parts(path)
    key = _derived(header, password, path)
    return Vault(path, header, key, _opened(AESGCM(key), header, sealed))


def _parts(path: Path) -> tuple[dict[str, object], bytes]:
    try:
        parts = json.loads(path.read_text("ascii"))
        header, sealed = parts["header"], bytes.fromhex(parts["sealed"])
    except FileNotFoundError:
        raise NotFound(what="wallet", id=str(path)) from None
    except (ValueError, KeyError, TypeError):
        raise Broken(why=f"{path.name} is not a wallet file") from None
    if not isinstance(header, dict):
        raise Broken(why=f"{path.name} is not a wallet file")
    return header, sealed


def _opened(cipher: AESGCM, header: dict[str, object], sealed: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:12], sealed[12:], _bound(header))
    except (InvalidTag, ValueError):
        raise Forbidden(
            why="the password is wrong, or the wallet's file was changed",
            hint="Give the wallet's password again, or restore its file from its words.",
        ) from None


def _sealed(header: dict[str, object], cipher: AESGCM, content: bytes) -> str:
    nonce = secrets.token_bytes(12)
    sealed = nonce + cipher.encrypt(nonce, content, _bound(header))
    return json.dumps({"header": header, "sealed": sealed.hex()}) + "\n"


def _bound(header: dict[str, object]) -> bytes:
    return json.dumps(header, sort_keys=True).encode()


def _derived(header: dict[str, object], password: str, path: Path) -> bytes:
    n, r, p, salt = (header.get(name) for name in ("n", "r", "p", "salt"))
    if header.get("version") != _VERSION or header.get("kdf") != "scrypt" or not isinstance(salt, str):
        raise Broken(why=f"{path.name} is sealed in a way this program does not know")
    if type(n) is not int or not _N <= n <= _MOST_N or (r, p) != (_R, _P):
        raise Broken(why=f"{path.name} asks for more than a wallet file needs")
    memory = _MEMORY * max(1, n // _N)
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=n, r=_R, p=_P, dklen=32, maxmem=memory)

"""Customers of a server that is killed under them: they keep asking for everything that moves money."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.errors import SdkError, Unreachable
from sandboxer.sdk.sync.client import Sandboxer

ACCOUNTS = ("rich", "poor")
FUNDS = {"rich": 10_000_000, "poor": 400}
SMALL = {"disk_mb": 64, "memory_mb": 64}
MOST = 5
CHILD_SCOPES = ["sandboxes:create", "sandboxes:read", "sandboxes:destroy", "exec"]
_numbers = count(1)


@dataclass
class Memory:
    """What outlives a server in its customers' heads."""

    keys: dict[str, Credentials] = field(default_factory=dict)
    # Child keys that were cut, with their secrets.
    children: list[Credentials] = field(default_factory=list)
    # Transfers that were answered: they are in the ledger for good.
    answered: list[str] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)
    # What was done, and what was refused with which words.
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def open_accounts(owner_file: Path, url: str, memory: Memory) -> None:
    with Sandboxer(owner_file=owner_file, url=url) as owner:
        for name in ACCOUNTS:
            owner.operator.create_account(id=name, name=name, reason="a test")
            owner.operator.adjust(name, FUNDS[name], id=f"first-{name}", reason="a test")
            key = owner.keys.create(name, name)
            memory.keys[name] = Credentials(key.public_key, key.secret_key, url)


@contextmanager
def customers(owner_file: Path, url: str, memory: Memory, seed: int) -> Iterator[None]:
    """They work until the server is gone, and leave with it."""
    over = threading.Event()
    threads = [
        threading.Thread(
            target=_Customer(name, owner_file, url, memory, random.Random(f"{seed}{name}"), over)
        )
        for name in ACCOUNTS
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a customer waits for a server that is dead"


class _Customer:
    def __init__(
        self,
        name: str,
        owner_file: Path,
        url: str,
        memory: Memory,
        dice: random.Random,
        over: threading.Event,
    ) -> None:
        self._name, self._memory, self._dice, self._over = name, memory, dice, over
        key = memory.keys[name]
        self._client = Sandboxer(url=url, public_key=key.public_key, secret_key=key.secret_key, timeout_s=20)
        self._owner = Sandboxer(owner_file=owner_file, url=url, timeout_s=20)
        self._url = url

    def __call__(self) -> None:
        with self._client, self._owner:
            while not self._over.is_set():
                act = self._choose()
                try:
                    act()
                    self._memory.done[act.__name__] += 1
                except Unreachable:
                    return
                except SdkError as error:
                    self._memory.refused[f"{act.__name__}: {error.code}"] += 1

    def _choose(self) -> Callable[[], None]:
        rare = (self._cut, self._revoke, self._buy_card, self._redeem, self._send)
        often = (self._create, self._exec, self._extend, self._destroy, self._top_up, self._change)
        kept = (self._take, self._drop, self._make_volume, self._remove_volume)
        return self._dice.choice((*often, *often, *kept, *rare))

    def _one(self) -> str | None:
        mine = [one.id for one in self._client.list(limit=50)]
        return self._dice.choice(mine) if mine else None

    def _create(self) -> None:
        if sum(1 for _ in self._client.list(limit=50)) < MOST:
            self._client.create(resources=SMALL, ttl="1h", idempotency_key=f"create-{next(_numbers)}")

    def _exec(self) -> None:
        if sandbox := self._one():
            self._client.sandbox(sandbox).exec("echo hi")

    def _extend(self) -> None:
        if sandbox := self._one():
            self._client.sandbox(sandbox).extend_ttl("1m")

    def _destroy(self) -> None:
        if sandbox := self._one():
            self._client.sandbox(sandbox).destroy()

    def _change(self) -> None:
        if sandbox := self._one():
            verb = self._dice.choice(("freeze", "thaw", "stop", "resume"))
            getattr(self._client.sandbox(sandbox), verb)()

    def _top_up(self) -> None:
        id_ = f"top-up-{next(_numbers)}"
        self._owner.operator.adjust(self._name, self._dice.randint(1, 60), id=id_, reason="a test")
        self._memory.answered.append(f"adjust:{id_}")

    def _cut(self) -> None:
        child = self._client.keys.delegate("child", CHILD_SCOPES, budget_sats=self._dice.randint(50, 200))
        self._memory.children.append(Credentials(child.public_key, child.secret_key, self._url))
        with Sandboxer(url=self._url, public_key=child.public_key, secret_key=child.secret_key) as other:
            other.create(resources=SMALL, ttl="1h")

    def _revoke(self) -> None:
        if self._memory.children:
            self._client.keys.revoke(self._memory.children.pop(0).public_key)

    def _buy_card(self) -> None:
        self._memory.cards.append(self._client.gift_cards.create(700, pay_with="sats").code or "")

    def _redeem(self) -> None:
        if self._memory.cards:
            self._client.gift_cards.redeem(self._memory.cards.pop(), cents=700)

    def _send(self) -> None:
        to = next(name for name in ACCOUNTS if name != self._name)
        id_ = f"gift-{next(_numbers)}"
        public = self._public_id(to)
        self._client.account.send(public, self._dice.randint(1, 5), id=id_, reason="a test")

    def _public_id(self, name: str) -> str:
        found: str = self._owner.operator.account(name).account.public_id
        return found

    def _take(self) -> None:
        if sandbox := self._one():
            self._client.snapshots.take(sandbox)

    def _drop(self) -> None:
        if mine := list(self._client.snapshots.list(limit=50)):
            self._client.snapshots.remove(self._dice.choice(mine).id)

    def _make_volume(self) -> None:
        if sum(1 for _ in self._client.volumes.list(limit=50)) < MOST:
            self._client.volumes.create(f"v{next(_numbers)}", size_mb=16)

    def _remove_volume(self) -> None:
        if mine := list(self._client.volumes.list(limit=50)):
            self._client.volumes.remove(self._dice.choice(mine).id)

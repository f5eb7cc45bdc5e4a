"""The server is killed at every step between verify and answer; nothing is lost, nothing doubled.

Whatever happened, after a restart the same request with the same payment is served, the chain moved the
money once, and the ledger credited it once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from x402.http.utils import decode_payment_required_header, encode_payment_signature_header

from sandboxer.money.buckets import unconfirmed
from sandboxer.money.tables import ledger_transfers
from sandboxer.money.verification import verify
from sandboxer.payments.lifecycle import State
from sandboxer.payments.tables import payments
from sandboxer.store.databases import open_database
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.payments.x402.facilitator import Facilitator, running_facilitator
from tests.payments.x402.shop_process import Plan, ShopProcess, state_of
from tests.support.payments.x402 import RATES, paying_client, settings_for

ROUTES: dict[str, dict[str, Any]] = {"/v1/topups": {"sats": 1000}, "/v1/sandboxes": {}}
ONCE = {"Idempotency-Key": "order-1"}


@pytest.fixture
def facilitator(evm: Anvil) -> Iterator[Facilitator]:
    with running_facilitator(evm) as running:
        yield running


class Scene:
    """A folder of state, the chain, and an agent that signed one payment and keeps presenting it."""

    def __init__(self, evm: Anvil, facilitator: Facilitator, folder: Path, path: str) -> None:
        self.chain = evm
        self.facilitator = facilitator
        self.folder = folder
        self.path = path
        self.body = ROUTES[path]
        self.wallet = evm.new_wallet(5_000_000)
        self.header: dict[str, str] = {}
        self.amount = 0

    def start(self, boot_s: float = 0.0) -> ShopProcess:
        network = {"facilitator": self.facilitator.url}
        settings = {
            "state_dir": str(self.folder / "state"),
            "host": "127.0.0.1",
            "port": 0,
            "x402": settings_for(self.chain, network=network, settle_timeout="20s"),
            "fixed_rates": {asset: str(price) for asset, price in RATES.items()},
        }
        return ShopProcess(Plan(settings, boot_s))

    async def sign(self, url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=40) as http:
            asked = await http.post(self.path, json=self.body)
        required = decode_payment_required_header(asked.headers["payment-required"])
        payload = await paying_client(self.wallet).create_payment_payload(required)
        self.amount = int(required.accepts[0].amount)  # type: ignore[union-attr]
        self.header = {"payment-signature": encode_payment_signature_header(payload), **ONCE}

    def pay(self, url: str) -> httpx.Response:
        return httpx.post(url + self.path, json=self.body, headers=self.header, timeout=40)

    def look(self, url: str) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(url, timeout=40).json()
        return found

    def pay_to_nobody(self, url: str) -> threading.Thread:
        """Beside the test; the server will not live to answer."""

        def send() -> None:
            try:
                self.pay(url)
            except httpx.HTTPError:
                return

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    @property
    def spent(self) -> int:
        return 5_000_000 - self.chain.balance(address_of(self.wallet))

    def read(self, question: Callable[[Any], Any]) -> Any:
        database = open_database(state_of(self.folder))
        try:
            with database.reading.connect() as conn:
                return question(conn)
        finally:
            database.dispose()

    def states(self) -> list[str]:
        return list(self.read(lambda conn: conn.execute(select(payments.c.state)).scalars().all()))

    def check_books(self, account_sats: int) -> None:
        """The ledger is whole, and what came in from outside is exactly so much."""

        def look(conn: Any) -> tuple[bool, int, int]:
            into = select(ledger_transfers).where(ledger_transfers.c.debit == "external:x402")
            rows = conn.execute(into).all()
            back = select(ledger_transfers).where(ledger_transfers.c.credit == "external:x402")
            total = sum(row.amount for row in rows) - sum(row.amount for row in conn.execute(back))
            owners = conn.execute(select(payments.c.account)).scalars().all()
            loose = sum(unconfirmed(conn, owner) for owner in set(owners))
            return verify(conn).is_whole, total, loose

        is_whole, total, loose = self.read(look)
        assert is_whole
        assert (total, loose) == (account_sats, 0)


def eventually(is_so: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def sats_of(answer: httpx.Response) -> int:
    return int(answer.json()["payment"]["sats"])


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("step", ["verify", "verified", "settle", "settled", "answered"])
async def test_killed_at_any_step_the_same_payment_is_taken_once(
    evm: Anvil, facilitator: Facilitator, tmp_path: Path, step: str, path: str
) -> None:
    scene = Scene(evm, facilitator, tmp_path, path)
    shop = scene.start()
    await scene.sign(shop.url)
    facilitator.stop_at(step)
    sending = scene.pay_to_nobody(shop.url)
    assert facilitator.reached.wait(30)
    shop.kill()
    facilitator.go_on()
    sending.join(30)
    shop = scene.start()
    try:
        answer = scene.pay(shop.url)
        assert answer.status_code in (201, 202), answer.text
        eventually(lambda: scene.states() == [State.CONFIRMED.value])
        again = scene.pay(shop.url)
        assert again.status_code in (201, 202), again.text
        if path == "/v1/sandboxes":
            assert again.json()["id"] == answer.json()["id"]
            seen = scene.look(f"{shop.url}/v1/payments/{_payment_id(scene)}")
            assert seen["sandbox_id"] == answer.json()["id"]
    finally:
        shop.kill()
    assert scene.spent == scene.amount
    scene.check_books(_sats(scene))


@pytest.mark.slow
@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("step", ["verified", "settle", "settled", "answered"])
async def test_killed_and_never_asked_again_the_books_follow_the_chain(
    evm: Anvil, facilitator: Facilitator, tmp_path: Path, step: str, path: str
) -> None:
    """The payer is gone: what moved on the chain is his credit, what did not move is not."""
    scene = Scene(evm, facilitator, tmp_path, path)
    shop = scene.start()
    await scene.sign(shop.url)
    facilitator.stop_at(step)
    scene.pay_to_nobody(shop.url)
    assert facilitator.reached.wait(30)
    shop.kill()
    facilitator.go_on()
    before = scene.states()
    shop = scene.start()
    try:
        if before == [State.BROADCASTING.value] or before == [State.CONFIRMED.value]:
            eventually(lambda: scene.states() == [State.CONFIRMED.value])
            assert scene.spent == scene.amount
        else:
            assert before in ([], [State.QUEUED.value])
            assert scene.spent == 0
    finally:
        shop.kill()
    scene.check_books(_sats(scene) if scene.spent else 0)


async def test_killed_while_it_is_being_made_nothing_was_paid_and_nothing_is_left(
    evm: Anvil, facilitator: Facilitator, tmp_path: Path
) -> None:
    scene = Scene(evm, facilitator, tmp_path, "/v1/sandboxes")
    shop = scene.start(boot_s=60)
    await scene.sign(shop.url)
    scene.pay_to_nobody(shop.url)
    eventually(lambda: scene.states() == [State.QUEUED.value])
    shop.kill()
    assert scene.spent == 0
    shop = scene.start()
    try:
        assert scene.states() == [State.QUEUED.value]
        assert scene.spent == 0
        scene.check_books(0)
        answer = scene.pay(shop.url)
        assert answer.status_code == 201, answer.text
        assert answer.json()["state"] == "ready"
    finally:
        shop.kill()
    assert scene.spent == scene.amount
    scene.check_books(_sats(scene))


def _payment_id(scene: Scene) -> str:
    return str(scene.read(lambda conn: conn.execute(select(payments.c.id)).scalar_one()))


def _sats(scene: Scene) -> int:
    return int(scene.read(lambda conn: conn.execute(select(payments.c.sats)).scalar_one()))

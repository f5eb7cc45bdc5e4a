"""The agent's side: it asks, is told 402, pays, gets a sandbox, uses it, and keeps the receipt.

It knows the platform's address and has a wallet; everything else it learns from the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from x402.http.utils import decode_payment_required_header, decode_payment_response_header
from x402.schemas import PaymentRequired

from sandboxer.kernel.clock import SystemClock
from sandboxer.payments.rates import as_text
from sandboxer.payments.wallet.agent import AgentWallet
from sandboxer.payments.wallet.spenders import Seed
from sandboxer.payments.wallet.x402 import X402Payer
from sandboxer.sdk.sync.client import Sandboxer
from testchains.demo.places import Evm, Ltc, Place, Stacks, Xmr
from testchains.demo.platform import Shop
from testchains.demo.story import Story

WANTED = {"ttl": "10m"}
# Two seconds of work, so that there is something to pay for.
PROGRAM = """
import platform, time
end, n, found = time.monotonic() + 2, 1, 0
while time.monotonic() < end:
    n += 1
    found += all(n % d for d in range(2, int(n**0.5) + 1))
print(f"{found} primes below {n}, said python {platform.python_version()} in a sandbox of mine")
"""
SETTLED_S = 90.0
A_BLOCK_S = 2.0


class Refused(RuntimeError):
    """The platform answered something the demo did not expect; its own words."""


@dataclass
class Agent:
    shop: Shop
    wallet: AgentWallet
    # Only to read what the shop has on its chain.
    seed: Seed
    story: Story

    def buy_by_x402(self, place: Evm | Stacks) -> None:
        with self._http() as http, self._watched(place):
            required = self._ask(http)
            with self.story.step("sign") as step:
                purse = X402Payer(
                    self.wallet, SystemClock(), tokens=place.tokens, stacks_node=place.stacks_node
                )
                signed = purse.sign(required)
                self.story.paid = f"{signed.amount} {signed.code}"
                step.says(f"{self.story.paid} to {_short(signed.offer.pay_to)} on {signed.offer.network}")
            with self.story.step("pay") as step:
                header = {"payment-signature": signed.header}
                answer = http.post("/v1/sandboxes", json=WANTED, headers=header)
                made = _read(answer, 201)
                settled = decode_payment_response_header(answer.headers["payment-response"])
                payment = made["payment"]
                self.story.transaction = settled.transaction
                self.story.credited = payment["sats"]
                step.says(f"201: sandbox {made['id']} and a key; payment is {payment['state']}")
            key = made["key"]
            with Sandboxer(
                url=self.shop.url, public_key=key["public_key"], secret_key=key["secret_key"]
            ) as client:
                self._use(client, made["id"])
                with self.story.step("receipt") as step:
                    place.mine()
                    final = _until(
                        lambda: _read(http.get(f"/v1/payments/{payment['id']}"), 200),
                        lambda seen: seen["state"] == "confirmed",
                    )
                    self.story.receipt = final["id"]
                    step.says(f"{final['id']} is {final['state']} in {_short(final['transaction'])}")
                self._settle(client)

    def buy_by_invoice(self, place: Ltc | Xmr) -> None:
        with self._http() as http, self._watched(place):
            self._ask(http)
            with self.story.step("invoice") as step:
                body = {"currency": place.asset.code, "sats": self.story.asked}
                bill = _read(http.post("/v1/invoices", json=body), 201)
                self.story.paid = f"{bill['amount']} {place.asset.code}"
                step.says(f"pay exactly {self.story.paid} to {_short(bill['address'])}")
            with self.story.step("pay") as step:
                self.story.transaction = place.pay(self.wallet, bill["address"], int(bill["atomic"]))
                step.says(f"sent in {_short(self.story.transaction)}")
            seen = self._confirm(http, bill, place.mine)
            with self.story.step("key") as step:
                path = f"/v1/keys/{seen['public_key']}/reveal"
                key = _read(http.post(path, json={"claim": bill["claim"]}), 200)
                step.says(f"account {_short(key['account'])}, secret shown once to who holds the claim")
            with Sandboxer(
                url=self.shop.url, public_key=key["public_key"], secret_key=key["secret_key"]
            ) as client:
                with self.story.step("create") as step:
                    sandbox = client.create(ttl=WANTED["ttl"])
                    step.says(f"sandbox {sandbox.id} is {sandbox.info.state}")
                self._use(client, sandbox.id)
                with self.story.step("receipt") as step:
                    final = _read(http.get(f"/v1/invoices/{bill['id']}"), 200)
                    (output,) = final["payments"]
                    self.story.receipt = bill["id"]
                    step.says(f"{bill['id']} is {final['state']}: output {_short(output['id'])}")
                self._settle(client)

    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self.shop.url, timeout=60, trust_env=False)

    def _watched(self, place: Place) -> _Watched:
        return _Watched(self, place)

    def _ask(self, http: httpx.Client) -> PaymentRequired:
        """A stranger asks for a sandbox, and is told what it costs and how to pay."""
        with self.story.step("ask") as step:
            answer = http.post("/v1/sandboxes", json=WANTED)
            reported = _read(answer, 402)
            self.story.asked = reported["least_sats"]
            step.says(f"402: {self.story.asked} sats to begin, {reported['sats']} for {WANTED['ttl']}")
            header = answer.headers.get("payment-required")
            required = decode_payment_required_header(header) if header else None
            return required if isinstance(required, PaymentRequired) else PaymentRequired(accepts=[])

    def _confirm(self, http: httpx.Client, bill: dict[str, Any], mine: Callable[[], None]) -> dict[str, Any]:
        """One block after the other, until the platform is satisfied."""
        needed = bill["confirmations_needed"]
        look = partial(self._invoice, http, bill["id"])
        with self.story.step("confirm", total=needed) as step:
            seen = _until(look, lambda seen: bool(seen["payments"]))
            deadline = time.monotonic() + SETTLED_S
            while not (is_paid := seen["public_key"] is not None) and time.monotonic() < deadline:
                mine()
                seen = self._after_block(look, seen["confirmations"])
                step.advance(seen["confirmations"])
            if not is_paid:
                raise Refused(f"the invoice is {seen['state']} with {seen['confirmations']} confirmations")
            self.story.credited = sum(one["sats"] for one in seen["payments"])
            step.says(f"{needed} blocks; invoice is {seen['state']}, {self.story.credited} sats credited")
        return seen

    def _invoice(self, http: httpx.Client, invoice_id: str) -> dict[str, Any]:
        return _read(http.get(f"/v1/invoices/{invoice_id}"), 200)

    def _after_block(self, look: Callable[[], dict[str, Any]], before: int) -> dict[str, Any]:
        """A node may leave a transaction out of its next block: one that gets no deeper wants another."""
        deadline = time.monotonic() + A_BLOCK_S
        while True:
            seen = look()
            is_deeper = seen["confirmations"] > before or seen["public_key"] is not None
            if is_deeper or time.monotonic() > deadline:
                return seen
            time.sleep(0.05)

    def _use(self, client: Sandboxer, sandbox_id: str) -> None:
        self.story.sandbox = sandbox_id
        with self.story.step("run") as step:
            result = client.sandbox(sandbox_id).exec(["python3", "-c", PROGRAM])
            if result.exit_code:
                raise Refused(f"the program ended with {result.exit_code}: {result.stderr[-500:]}")
            self.story.output = result.stdout.strip()
            step.says(self.story.output)
        with self.story.step("destroy") as step:
            client.sandbox(sandbox_id).destroy()
            step.says("the meter stops here")

    def _settle(self, client: Sandboxer) -> None:
        with self.story.step("books") as step:
            money = client.account.me().money
            self.story.left = money.balance
            self.story.spent = sum(
                -line.change for line in client.account.transfers().transfers if line.change < 0
            )
            step.says(
                f"{self.story.credited} sats came in, {self.story.spent} were spent, {money.balance} are left"
            )


class _Watched:
    """Balances on the chain before and after."""

    def __init__(self, agent: Agent, place: Place) -> None:
        self._agent = agent
        self._place = place

    def __enter__(self) -> None:
        agent, story = self._agent, self._agent.story
        with story.step("wallet") as step:
            self._place.fund(agent.wallet)
            story.payer_before, story.shop_before = self._look()
            step.says(f"a new wallet with {story.payer_before} {self._place.asset.code}, and nothing else")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._agent.story.payer_after, self._agent.story.shop_after = self._look()

    def _look(self) -> tuple[str, str]:
        payer = self._place.payer_has(self._agent.wallet)
        shop = self._place.shop_has(self._agent.seed)
        return as_text(payer, self._place.asset), as_text(shop, self._place.asset)


def _read(answer: httpx.Response, status: int) -> dict[str, Any]:
    if answer.status_code != status:
        raise Refused(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:600]}"
        )
    body: dict[str, Any] = answer.json()
    return body


def _until(look: Callable[[], dict[str, Any]], is_there: Callable[..., bool]) -> dict[str, Any]:
    deadline = time.monotonic() + SETTLED_S
    while not is_there(seen := look()):
        if time.monotonic() > deadline:
            raise Refused(f"it did not come to that within {SETTLED_S:.0f} s: {str(seen)[:600]}")
        time.sleep(0.1)
    return seen


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:12]}…{text[-8:]}"

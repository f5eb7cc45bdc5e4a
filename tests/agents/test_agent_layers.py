"""Flow 13 of the paper, inception: an agent with nothing but money finds the platform, pays on a real chain,
and makes layers of sandboxes, each from inside the one above, on real walls.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sandboxer.edges.cli.agent_wallets import OwnTokens
from sandboxer.payments.wallet.agent import create_wallet
from sandboxer.sdk.agent.line import Reply
from sandboxer.sdk.agent.payment import NotBroadcast, Signed
from sandboxer.sdk.agent.progress import End, Progress, Step, Way
from sandboxer.sdk.credentials import Credentials
from sandboxer.settings import Settings
from testchains.core_client import RpcError
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from testchains.litecoin import Litecoin
from tests.support.agent_payers import (
    PASSWORD,
    Node,
    buyer,
    chosen,
    first_invoice,
    mining,
    opened_by,
    outputs,
    own_coins,
    payer_of,
    payments,
    selling_for,
    walls,
)
from tests.support.agent_runs import Run, looks, lying, run_of
from tests.support.chains.evm import evm
from tests.support.http.gift_cards import free_card
from tests.support.http.x402 import settings_with

__all__ = ["evm"]


def steps_of(run: Run) -> list[str]:
    """Each step that it was in, once."""
    return list(dict.fromkeys(one.step.value for one in run.seen))


async def test_a_wallet_pays_by_x402_for_three_layers(evm: Anvil, tmp_path: Path) -> None:
    key = evm.new_wallet(5_000_000)
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        run = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key), depth=3)
        ended = await run.go()
        assert (ended.end, run.troubles) == (End.DONE, []), ended.trouble
        assert steps_of(run) == [step.value for step in Step if step is not Step.RECEIVE_KEYS]
        assert ended.result is not None
        assert ended.result.output == "paid for\n"
        below = ended.result.below
        assert below is not None
        assert (below["sandbox"], below["below"]["depth"]) == (ended.child and ended.child.id, 1)
        (payment,) = await payments(served)
        assert (payment["state"], payment["sats"]) == ("confirmed", 2_000)
        assert evm.balance(address_of(key)) == 5_000_000 - int(payment["amount"])


PROGRAM = """
import json, sys, time
from pathlib import Path
from sandboxer.sdk.agent import loop, outside
from sandboxer.sdk.agent.progress import Order, Way, begin
from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.payers import Cap, EvmPayer
url, path, key, network, asset = sys.argv[1:]
payer = EvmPayer(key, [Cap(network=network, asset=asset, per_payment=5000000, in_total=5000000)])
around = outside.surroundings(Credentials("", "", url), wallet=outside.PayerWallet(payer, payer.sign_text))
file = loop.StateFile(Path(path))
order = Order(depth=2, task="echo paid for", url=url, way=Way.X402, budget_sats=2000)
with file.alone():
    print("begun", flush=True)
    loop.run(file, file.read() or begin(order, now=time.time()), around,
             watch=lambda known: print(known.step.value, flush=True))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_killed_after_each_act_and_at_any_moment_it_pays_once(evm: Anvil, tmp_path: Path) -> None:
    key = evm.new_wallet(5_000_000)
    async with walls(tmp_path, settings_with(evm, tmp_path), limit_address=100_000) as served:
        words = [sys.executable, "-c", PROGRAM, served.url, str(tmp_path / "run.json"), key]
        kills, met = 0, []
        while True:
            process = await asyncio.to_thread(
                subprocess.Popen, [*words, evm.network, evm.asset], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            # Once after an act, once in the middle of the next, by turns; at last it is let go.
            lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(3)]
            if all(lines) and kills < 40:
                await asyncio.sleep(0.004 * (kills % 4))
                process.send_signal(signal.SIGKILL)
                kills += 1
            met += [line.strip() for line in lines if line]
            code = await asyncio.to_thread(process.wait)
            process.stdout.close()
            if code == 0:
                break
            assert code == -signal.SIGKILL
        assert kills >= 10
        known = json.loads((tmp_path / "run.json").read_text())
        assert (known["end"], known["result"]["output"]) == ("done", "paid for\n"), known["events"]
        (payment,) = await payments(served)
        assert evm.balance(address_of(key)) == 5_000_000 - int(payment["amount"])
        made = (await served.client.get("/v1/sandboxes?state=destroyed&limit=100")).json()["sandboxes"]
        assert len(made) == 2
        print(f"{kills} kills, in {sorted(set(met))}")


async def lose_the_key(run: Run) -> None:
    """Crashes after the platform had answered and before it was written down."""
    before = ""

    def watch(known: Progress) -> None:
        nonlocal before
        if known.key is not None:
            run.path.write_text(before)
            raise KeyboardInterrupt
        before = run.path.read_text()

    with pytest.raises(KeyboardInterrupt):
        await run.go(watch)


async def test_a_key_whose_answer_was_lost_is_made_again_by_the_wallet(evm: Anvil, tmp_path: Path) -> None:
    """The payment is sent again as it was, no key is shown a second time, and the wallet signs in."""
    key = evm.new_wallet(5_000_000)
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        run = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key))
        await lose_the_key(run)
        ended = await run.go()
        assert (ended.end, run.troubles) == (End.DONE, ["lost_key"]), ended.trouble
        assert len(await payments(served)) == 1


async def test_a_wallet_that_is_locked_when_it_should_sign_in_is_named(evm: Anvil, tmp_path: Path) -> None:
    key = evm.new_wallet(5_000_000)
    create_wallet(tmp_path / "agent.wallet", PASSWORD)
    (tmp_path / "wallet.password").write_text("not this one")
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        run = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key))
        await lose_the_key(run)
        tokens = OwnTokens(chosen(tmp_path, Node("", "")))
        locked = buyer(served, tmp_path, Way.X402, wallet=tokens)
        stopped = await locked.go()
        assert (stopped.end, stopped.step) == (None, Step.RECEIVE_KEYS)
        assert locked.troubles == ["lost_key", "locked_wallet"]
        ended = await run.go()
        assert (ended.end, run.troubles) == (End.DONE, []), ended.trouble
        assert len(await payments(served)) == 1


async def test_money_that_is_gone_after_it_was_confirmed_is_looked_for_where_it_came_from(
    evm: Anvil, tmp_path: Path
) -> None:
    """The platform refuses the child for lack of money, and says that the payment is in doubt: the run waits
    for that payment, and makes no other.
    """
    key = evm.new_wallet(5_000_000)
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        run = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key))
        is_gone: list[str] = []

        def bend(method: str, target: str, send: Callable[[], Reply]) -> Reply:
            if (method, target) == ("POST", "/v1/sandboxes") and not is_gone:
                is_gone.append(target)
                return Reply(402, {}, b'{"detail": "not enough credit"}')
            if target.startswith("/v1/payments/") and len(is_gone) == 1:
                is_gone.append(target)
                return Reply(200, {}, b'{"state": "doubted"}')
            return send()

        run.around = lying(run.around, Credentials("", "", served.url), bend)
        ended = await run.go()
        assert (ended.end, run.troubles) == (End.DONE, ["reversed_confirmation"]), ended.trouble
        (payment,) = await payments(served)
        assert evm.balance(address_of(key)) == 5_000_000 - int(payment["amount"])


async def test_what_a_wallet_cannot_pay_now_it_pays_later_and_once(evm: Anvil, tmp_path: Path) -> None:
    key = evm.new_wallet(0)
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        tight = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key, most=1))
        locked = await tight.go()
        assert (locked.step, tight.troubles) == (Step.SEND_PAYMENT, ["locked_wallet"])
        run = buyer(served, tmp_path, Way.X402, wallet=payer_of(evm, key))
        failed = await run.go()
        assert (failed.step, set(run.troubles)) == (Step.SEND_PAYMENT, {"failed_broadcast"})
        assert failed.payment is not None
        evm.fund(address_of(key), 5_000_000)
        ended = await run.go()
        assert ended.end is End.DONE, ended.trouble
        assert ended.payment is not None
        assert ended.payment.signed == failed.payment.signed
        (payment,) = await payments(served)
        assert evm.balance(address_of(key)) == 5_000_000 - int(payment["amount"])


async def test_a_gift_card_pays(tmp_path: Path) -> None:
    plain = Settings.model_validate({"fixed_rates": {"BTC": "60000"}, "port": 0, "host": "127.0.0.1"})
    async with walls(tmp_path, plain, limit_auth=1_000) as served:
        card = await free_card(served, cents=700)
        run = buyer(served, tmp_path, Way.GIFT_CARD, gift_code=card["code"], depth=2)
        ended = await run.go()
        assert (ended.end, run.troubles) == (End.DONE, []), ended.trouble
        assert Step.RECEIVE_KEYS.value in steps_of(run)


@pytest.mark.parametrize("wish", [{"image": "nope"}, {"memory_mb": 1 << 22}])
async def test_what_cannot_be_made_is_refused_before_anything_is_paid(
    tmp_path: Path, wish: dict[str, Any]
) -> None:
    plain = Settings.model_validate({"fixed_rates": {"BTC": "60000"}, "port": 0, "host": "127.0.0.1"})
    async with walls(tmp_path, plain) as served:
        run = buyer(served, tmp_path, Way.GIFT_CARD, gift_code="a card that is never shown", **wish)
        run.order = replace(run.order, ttl_s=1, budget_sats=10**9)
        ended = await run.go()
        assert (ended.end, ended.step, ended.bill) == (End.GAVE_UP, Step.FETCH_PRICING, None), ended.trouble
        assert run.troubles == ["refused"]


async def test_a_wallet_of_coins_pays_an_invoice(litecoin: Litecoin, tmp_path: Path) -> None:
    async with walls(tmp_path, selling_for(litecoin, tmp_path)) as served:
        coins = own_coins(litecoin, tmp_path)
        run = buyer(served, tmp_path, Way.INVOICE, coins=coins, coin="LTC", depth=2)
        run.longest_pause_s = 0.3
        ended = await run.go(mining(litecoin))
        assert (ended.end, run.troubles) == (End.DONE, []), ended.trouble
        (invoice,) = (await served.client.get("/v1/invoices")).json()["invoices"]
        assert invoice["state"] == "paid"
        assert await outputs(served) == 1


async def test_a_wallet_that_is_locked_pays_nothing_until_it_is_opened(
    litecoin: Litecoin, tmp_path: Path
) -> None:
    """The password is wrong, then missing, then right: the same run goes on, and pays once."""
    async with walls(tmp_path, selling_for(litecoin, tmp_path)) as served:
        coins = own_coins(litecoin, tmp_path)
        given = tmp_path / "wallet.password"
        for text in (b"not this one", None, b"", b"\xff"):
            given.unlink(missing_ok=True)
            if text is not None:
                given.write_bytes(text)
            run = buyer(served, tmp_path, Way.INVOICE, coins=opened_by(tmp_path, litecoin), coin="LTC")
            locked = await run.go()
            assert (locked.end, locked.step) == (None, Step.SEND_PAYMENT)
            assert (run.troubles[-1:], locked.payment) == (["locked_wallet"], None), locked.trouble
        given.write_text(PASSWORD)
        run = buyer(served, tmp_path, Way.INVOICE, coins=coins, coin="LTC")
        run.longest_pause_s = 0.3
        ended = await run.go(mining(litecoin))
        assert (ended.end, run.troubles[1:]) == (End.DONE, []), ended.trouble
        assert await outputs(served) == 1
        assert len((await served.client.get("/v1/invoices")).json()["invoices"]) == 1


@pytest.mark.parametrize("way", [Way.INVOICE, Way.GIFT_CARD])
async def test_a_secret_that_was_lost_on_its_way_stops_the_run_and_the_operator_makes_another(
    litecoin: Litecoin, tmp_path: Path, way: Way
) -> None:
    """Killed after the platform had shown the secret of the key and before it was written down: the claim
    opens nothing any more. What was bought stays with the account, and a new run spends it.
    """
    async with walls(tmp_path, selling_for(litecoin, tmp_path)) as served:
        if way is Way.INVOICE:
            run = buyer(served, tmp_path, way, coins=own_coins(litecoin, tmp_path), coin="LTC")
            run.longest_pause_s = 0.3
        else:
            run = buyer(served, tmp_path, way, gift_code=(await free_card(served, cents=700))["code"])
        whole = run.around

        def lose(method: str, target: str, send: Callable[[], Reply]) -> Reply:
            reply = send()
            if target.endswith("/reveal"):
                raise KeyboardInterrupt
            return reply

        run.around = replace(lying(whole, Credentials("", "", served.url), lose), coins=whole.coins)
        with pytest.raises(KeyboardInterrupt):
            await run.go(mining(litecoin))
        run.around = whole
        for _ in range(2):
            stopped = await run.go()
            assert (stopped.end, stopped.step) == (None, Step.RECEIVE_KEYS)
            assert stopped.trouble is not None
            assert (stopped.trouble.blocker, stopped.trouble.reaction) == ("lost_key", "stop")
        assert stopped.payment is not None
        lost = stopped.payment.public_key
        assert lost is not None
        # It names the key that the operator is to be asked for.
        assert lost in stopped.trouble.why
        made = await served.client.post(f"/v1/keys/{lost}/regenerate")
        assert made.status_code == 200, made.text
        key = Credentials(lost, made.json()["secret_key"], served.url)
        again = run_of(served, tmp_path / "again", key, task="echo paid for", budget_sats=2_000)
        ended = await again.go()
        assert (ended.end, again.troubles) == (End.DONE, []), ended.trouble
        listed = (await served.client.get("/v1/keys")).json()["keys"]
        assert {one["public_key"] for one in listed} == {lost, served.owner.public_key}
        assert await outputs(served) == (1 if way is Way.INVOICE else 0)


async def test_an_invoice_that_ended_unpaid_is_asked_for_anew(litecoin: Litecoin, tmp_path: Path) -> None:
    settings = selling_for(litecoin, tmp_path, expires_after="3s")
    async with walls(tmp_path, settings) as served:
        coins = own_coins(litecoin, tmp_path)
        run = buyer(served, tmp_path, Way.INVOICE, coins=coins, coin="LTC")
        run.longest_pause_s = 0.3

        def leave(known: Progress) -> None:
            if known.bill is not None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await run.go(leave)
        async for _ in looks():
            if (await first_invoice(served))["state"] == "expired":
                break
        ended = await run.go(mining(litecoin))
        assert ended.end is End.DONE, ended.trouble
        assert run.troubles[0] == "expired_invoice"
        assert await outputs(served) == 1


class BankCoins:
    """The node's own wallet, whose payments can be spent doubly; it counts what it signed."""

    def __init__(self, litecoin: Litecoin) -> None:
        self._litecoin = litecoin
        self.signed: list[str] = []

    def prepare(self, address: str, atomic: int) -> Signed:
        bank = self._litecoin.call
        raw = bank("createrawtransaction", [], [{address: str(Decimal(atomic) / 10**8)}], 0, True)
        funded = bank("fundrawtransaction", raw, {"replaceable": True})["hex"]
        made = bank("signrawtransactionwithwallet", funded)["hex"]
        self.signed.append(bank("decoderawtransaction", made)["txid"])
        return Signed(self.signed[-1], made)

    def broadcast(self, signed: Signed) -> None:
        try:
            self._litecoin.call("sendrawtransaction", signed.raw)
        except RpcError as error:
            if "already" not in str(error):
                raise NotBroadcast(str(error)) from None


async def test_a_payment_that_the_chain_takes_back_is_sent_again_and_never_signed_again(
    litecoin: Litecoin, tmp_path: Path
) -> None:
    """Somebody spends the same coins elsewhere: the run stops and says so, and pays no second time."""
    async with walls(tmp_path, selling_for(litecoin, tmp_path)) as served:
        coins = BankCoins(litecoin)
        run = buyer(served, tmp_path, Way.INVOICE, coins=coins, coin="LTC")
        run.longest_pause_s = 0.3

        def watch(known: Progress) -> None:
            if known.payment is not None and known.payment.state == "seen" and len(coins.signed) == 1:
                litecoin.double_spend(coins.signed[0])
                coins.signed.append("spent doubly")

        stopped = await run.go(watch)
        assert stopped.end is None
        assert run.troubles[0] == "reversed_confirmation"
        assert set(run.troubles) == {"reversed_confirmation", "failed_broadcast"}
        assert stopped.payment is not None
        assert coins.signed == [stopped.payment.txid, "spent doubly"]
        litecoin.mine()


async def test_a_reorganisation_before_the_payment_is_deep_is_waited_out(
    litecoin: Litecoin, tmp_path: Path
) -> None:
    async with walls(tmp_path, selling_for(litecoin, tmp_path)) as served:
        coins = BankCoins(litecoin)
        run = buyer(served, tmp_path, Way.INVOICE, coins=coins, coin="LTC")
        run.longest_pause_s = 0.3
        states: list[str | None] = []

        def watch(known: Progress) -> None:
            if known.payment is None or known.step is not Step.POLL_CONFIRMATION:
                return
            states.append(known.payment.state)
            if states[-1] == "seen":
                litecoin.mine(1 if states.count("seen") == 1 else 2)
            elif states[-1] == "confirming" and states.count("confirming") == 1:
                litecoin.reorg(1)

        ended = await run.go(watch)
        assert ended.end is End.DONE, ended.trouble
        assert (states.count("seen"), "confirming" in states) == (2, True)
        assert (len(coins.signed), await outputs(served)) == (1, 1)

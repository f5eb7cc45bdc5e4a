"""Who gets a key with the answer to a payment: the payer, for the account of the wallet that paid."""

from __future__ import annotations

from sandboxer.accounts import records as accounts
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.payments.goods import key_for_payer
from testchains.evm.anvil import address_of
from tests.support.payments.x402 import Desk, topup


async def test_a_payer_gets_one_key_for_the_account_of_his_wallet(use_cases: Desk, wallet: str) -> None:
    payment = await use_cases.buy(await use_cases.pay(wallet))
    now = use_cases.clock.now()
    keys = use_cases.x402.keys
    made = await use_cases.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now))
    assert made is not None
    assert made.account == payment.account
    assert await use_cases.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None


async def test_who_pays_for_somebody_elses_account_gets_no_key_to_it(use_cases: Desk, wallet: str) -> None:
    now = use_cases.clock.now()
    await use_cases.store.write(
        lambda conn: accounts.create(conn, id="acc_other", actor="test", reason="test", now=now)
    )
    payment = await use_cases.buy(await use_cases.pay(wallet), topup(account="acc_other"))
    assert payment.account == "acc_other"
    keys = use_cases.x402.keys
    assert await use_cases.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None


async def test_a_revoked_wallet_gets_no_key(use_cases: Desk, wallet: str) -> None:
    payment = await use_cases.buy(await use_cases.pay(wallet))
    name = wallet_of(address_of(wallet)).caip10
    await Wallets(use_cases.store, use_cases.clock).revoke(payment.account, name, actor="test")
    now = use_cases.clock.now()
    keys = use_cases.x402.keys
    assert await use_cases.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None

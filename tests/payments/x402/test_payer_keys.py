"""Who gets a key with the answer to a payment: the payer, for the account of the wallet that paid."""

from __future__ import annotations

from sandboxer.accounts import records as accounts
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.payments.payer_keys import key_for_payer
from testchains.evm.anvil import address_of
from tests.payments.x402.conftest import Desk, topup


async def test_a_payer_gets_one_key_for_the_account_of_his_wallet(desk: Desk, wallet: str) -> None:
    payment = await desk.buy(await desk.pay(wallet))
    now = desk.clock.now()
    keys = desk.x402.keys
    made = await desk.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now))
    assert made is not None
    assert made.account == payment.account
    assert await desk.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None


async def test_who_pays_for_somebody_elses_account_gets_no_key_to_it(desk: Desk, wallet: str) -> None:
    now = desk.clock.now()
    await desk.store.write(
        lambda conn: accounts.create(conn, id="acc_other", actor="test", reason="test", now=now)
    )
    payment = await desk.buy(await desk.pay(wallet), topup(account="acc_other"))
    assert payment.account == "acc_other"
    keys = desk.x402.keys
    assert await desk.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None


async def test_a_revoked_wallet_gets_no_key(desk: Desk, wallet: str) -> None:
    payment = await desk.buy(await desk.pay(wallet))
    name = wallet_of(address_of(wallet)).caip10
    await Wallets(desk.store, desk.clock).revoke(payment.account, name, actor="test")
    now = desk.clock.now()
    keys = desk.x402.keys
    assert await desk.store.write(lambda conn: key_for_payer(conn, keys, payment, now=now)) is None

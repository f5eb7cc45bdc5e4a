"""The same refund on every other chain: Bitcoin by RPC and by Esplora, Dogecoin's stand-in, Monero."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.payments.chains.configuration import Cap, ChainPlan, chains_from_json, open_chain
from sandboxer.payments.hot_wallet import HotWallet
from sandboxer.payments.invoices.records import RefundState
from sandboxer.payments.wallet.agent import AgentWallet, create_wallet, open_spender
from sandboxer.payments.wallet.spenders import new_seed
from sandboxer.store.engine import Store
from testchains.monero import Monero
from tests.support.payments.shop import Shop, open_shop

S = RefundState


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/sandboxer.db"


def plan_of(node: Any, source: str, wallet: AgentWallet, folder: Path) -> ChainPlan:
    (folder / "password").write_text(node.password)
    given: dict[str, Any] = {"user": node.user, "password_file": str(folder / "password")}
    if isinstance(node, Monero):
        return chains_from_json({"XMR": given | {"wallet_rpc": node.wallet_url, "daemon": node.daemon_url}})[
            0
        ]
    code, network = node.network.coin, node.network.name
    given |= {"network": network, "xpub": wallet.seed.account(code, network).xpub()}
    if source == "esplora":
        return chains_from_json({code: {"esplora": node.esplora_url, **given}})[0]
    return chains_from_json({code: {"rpc": node.url, **given}})[0]


@pytest.fixture(params=["bitcoin", "esplora", "dogecoin", "monero"])
async def place(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path
) -> AsyncIterator[tuple[Any, Shop, HotWallet]]:
    node = request.getfixturevalue({"esplora": "bitcoin"}.get(request.param, request.param))
    wallet = create_wallet(tmp_path / "hot.wallet", "long enough")
    plan = plan_of(node, request.param, wallet, tmp_path)
    wallet.set_cap(plan.code, Cap(per_payment=10**15, per_day=10**15))
    chain = open_chain(plan)
    shop = open_shop(store, chain)
    async with AsyncExitStack() as closing:
        closing.push_async_callback(chain.close)
        spender = await closing.enter_async_context(open_spender(wallet, plan))
        yield (
            node,
            shop,
            HotWallet(chain, spender, wallet, store, shop.clock, confirmations=2, poll=timedelta(seconds=1)),
        )


async def test_a_late_payment_goes_back_and_is_followed_until_it_lies_deep(place: Any) -> None:
    node, shop, hot = place
    home = node.bank_address if isinstance(node, Monero) else elsewhere(node)
    bill = await shop.order(refund_address=home)
    await shop.look(after=timedelta(hours=2))
    node.pay(bill.invoice.address, bill.invoice.price.atomic)
    node.mine(bill.invoice.confirmations)
    await shop.look()
    assert await shop.state(bill) == "refund_due"
    await hot.look()
    (sent,) = await shop.refunds()
    assert (sent.state, sent.held) == (S.SENT, None)
    assert sent.amount == bill.invoice.price.atomic * 91 // 100
    assert 0 < sent.fee < sent.kept
    await hot.look()
    node.mine(2)
    await hot.look()
    (done,) = await shop.refunds()
    assert (done.state, done.sent_txid) == (S.CONFIRMED, sent.sent_txid)
    if isinstance(node, Monero):
        assert node.received(sent.sent_txid) == sent.amount
    else:
        assert [each.amount for each in await shop.chain.deposits([home])] == [sent.amount]
    await shop.look()
    assert await shop.state(bill) == "refunded"


def elsewhere(node: Any) -> str:
    return str(new_seed().account(node.network.coin, node.network.name).address(0))

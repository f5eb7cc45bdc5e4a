"""Flow 2, which the paper does not name: between discovery and payment stand prices, and the keys one buys.

An agent that was given four words and nothing else has an account, a key and a sandbox, and its secret once.
"""

from __future__ import annotations

import httpx
import pytest

from sandboxer.sdk.errors import AuthenticationFailed, Conflict
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.flows import Charging, settled


def test_an_agent_with_four_words_gets_a_key_once_and_a_sandbox_at_the_price_it_was_told(
    charging: Charging,
) -> None:
    with Sandboxer(owner_file=charging.up.owner_file, url=charging.up.url) as owner:
        card = owner.gift_cards.create(700, pay_with="operator", reason="a test")
    nobody = Sandboxer(url=charging.up.url, public_key="nobody", secret_key="nobody")
    done = nobody.gift_cards.redeem(str(card.code), anonymous=True)
    assert done.public_key is not None
    assert done.claim is not None
    key = nobody.invoices.claim_key(done.public_key, done.claim)
    with pytest.raises(Conflict):
        nobody.invoices.claim_key(done.public_key, done.claim)

    with Sandboxer(url=charging.up.url, public_key=key.public_key, secret_key=key.secret_key) as agent:
        assert agent.account.me().money.balance == 7_000
        quote = agent.account.quote(duration="10m")
        with agent.create(ttl="10m", quote_id=quote.id) as sandbox:
            assert sandbox.refresh().rate_msats_per_s == quote.running_msats
            assert sandbox.exec("echo hello").stdout == "hello\n"
        assert 7_000 - quote.sats <= agent.account.me().money.balance <= 7_000


def test_a_key_cut_from_it_can_do_less_and_ends_with_what_it_made(charging: Charging) -> None:
    known = charging.key
    with Sandboxer(url=charging.up.url, public_key=known.public_key, secret_key=known.secret_key) as agent:
        key = agent.keys.delegate("worker", ["sandboxes:create", "exec"], budget_sats=100, slots=1)
        worker = Sandboxer(url=charging.up.url, public_key=key.public_key, secret_key=key.secret_key)
        sandbox = worker.create(ttl="10m")
        assert sandbox.exec("echo hello").stdout == "hello\n"
        before = agent.account.me().money.balance
        agent.keys.revoke(key.public_key)
        with pytest.raises(AuthenticationFailed):
            worker.create()
        node = settled(agent, key.account)
        assert node.given == 100 == node.returned + node.subtree_spent
        assert agent.account.me().money.balance == before + node.returned


def test_a_stranger_is_told_the_price_of_what_it_asked_for(charging: Charging) -> None:
    answer = httpx.post(f"{charging.up.url}/v1/sandboxes", json={"ttl": "1h"}, trust_env=False)
    assert answer.status_code == 402
    assert answer.json()["sats"] == answer.json()["quote"]["sats"] > 0


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(2)

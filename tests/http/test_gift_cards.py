"""Gift cards over HTTP: bought with real litecoins, redeemed in parts, ended and refunded by the buyer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from embit import bip32

from sandboxer.money.verification import verify
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.confirmation import solve
from sandboxer.store.idempotency import abandon_all_in_flight
from testchains.litecoin import Litecoin
from tests.support.http.flows import flow
from tests.support.http.gift_cards import ask, free_card, new_key, opened, shop_settings
from tests.support.http.real import IMAGES, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials


def litecoins(litecoin: Litecoin, state: Path) -> dict[str, Any]:
    state.mkdir(parents=True, exist_ok=True)
    (state / "password").write_text(litecoin.password)
    xpub = bip32.HDKey.from_seed(str(state).encode().ljust(64)[-64:]).derive("m/84h/1h/0h").to_public()
    return {
        "LTC": {
            "rpc": litecoin.url,
            "network": "regtest",
            "user": litecoin.user,
            "password_file": str(state / "password"),
            "xpub": xpub.to_base58(),
        }
    }


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Served]:
    async with opened(shop_settings(tmp_path)) as served:
        yield served


@pytest.fixture
async def coin_shop(litecoin: Litecoin, tmp_path: Path) -> AsyncIterator[Served]:
    settings = shop_settings(tmp_path, chains=litecoins(litecoin, tmp_path))
    async with opened(settings) as served:
        yield served


@pytest.fixture
async def real_shop(litecoin: Litecoin, tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    settings = shop_settings(state, chains=litecoins(litecoin, state), images_dir=IMAGES, pool_size_mb=800)
    try:
        async with serving(settings, None) as served:
            try:
                yield served
            finally:
                for sandbox in (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                    await served.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def until(served: Served, path: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        seen = (await served.client.http.get(path)).json()
        if seen["state"] == state:
            return dict(seen)
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.05)


async def pay(served: Served, litecoin: Litecoin, made: dict[str, Any]) -> dict[str, Any]:
    litecoin.pay(made["bill"]["address"], int(made["bill"]["atomic"]))
    litecoin.mine(6)
    await until(served, f"/v1/invoices/{made['bill']['id']}", "paid")
    return await until(served, f"/v1/gift-cards/{made['id']}", "active")


@flow("buyGiftCard", "getGiftCard", "showGiftCode", "redeemGiftCard", "getRedemption")
async def test_fifty_dollars_in_litecoin_become_a_tier_a_key_sats_and_a_running_sandbox(
    real_shop: Served, litecoin: Litecoin
) -> None:
    answer = await ask(real_shop, "", cents=5000, currency="LTC")
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["state"], made["code"], made["bill"]["amount"]) == ("awaiting_payment", None, "0.625005")
    early = await ask(real_shop, f"/{made['id']}/code", claim=made["claim"])
    assert (early.status_code, early.json()["reason"]) == (409, "not_paid")
    paid = await pay(real_shop, litecoin, made)
    assert (paid["left_cents"], paid["is_shown"]) == (5000, False)
    code = (await ask(real_shop, f"/{made['id']}/code", claim=made["claim"])).json()["code"]
    again = await ask(real_shop, f"/{made['id']}/code", claim=made["claim"])
    assert (again.status_code, again.json()["reason"]) == (409, "already_shown")
    # A tier for three months: 50.00 - 19.53 = 30.47.
    written = code.upper().replace("-", "  ")
    tier = (await ask(real_shop, "/redeem", code=written, tier=1, months=3)).json()
    assert (tier["state"], tier["cents"], tier["left_cents"]) == ("granted", 1953, 3047)
    client = await new_key(real_shop, tier)
    me = (await client.get("/v1/accounts/me")).json()
    assert me["account"]["tier"] == 1
    # The rest as sats, into the same account, by its own signature.
    rest = await client.post("/v1/gift-cards/redeem", {"code": code})
    assert rest.status_code == 201, rest.text
    assert (rest.json()["cents"], rest.json()["sats"], rest.json()["left_cents"]) == (3047, 50783, 0)
    assert (await client.get("/v1/accounts/me")).json()["money"]["balance"] == 50783
    seen = (await real_shop.client.http.get(f"/v1/gift-cards/{made['id']}")).json()
    assert (seen["state"], seen["left_cents"]) == ("spent", 0)
    box = await client.post("/v1/sandboxes", {"resources": {"disk_mb": 128}})
    assert box.status_code == 201, box.text
    ran = await client.post(f"/v1/sandboxes/{box.json()['id']}/exec", {"argv": ["echo", "gift"]})
    assert ran.json()["stdout"].strip() == "gift"
    followed = (await real_shop.client.http.get(f"/v1/gift-cards/redemptions/{tier['id']}")).json()
    assert followed["state"] == "granted"
    assert "claim" not in followed


@flow("getGiftBalance", "getGiftPricing", "listGiftCards")
async def test_a_card_says_what_is_left_to_who_has_its_words_only(shop: Served) -> None:
    made = await free_card(shop)
    found = await ask(shop, "/balance", code=made["code"])
    assert (found.status_code, found.json()["left_cents"]) == (200, 5000)
    assert (await ask(shop, "/balance", code="zoom-zoom-zoom-zoom")).status_code == 404
    assert (await ask(shop, "/balance", code="not a word here")).status_code == 422
    prices = (await shop.client.http.get("/v1/gift-cards/pricing")).json()
    assert (prices["min_cents"], prices["words"], prices["word_list"]) == (700, 4, 7776)
    assert prices["sats_per_dollar"] == 1666
    listed = (await shop.client.get("/v1/gift-cards?state=active")).json()["cards"]
    assert [one["id"] for one in listed] == [made["id"]]
    assert made["code"] not in str(listed)
    stranger = await shop.stranger()
    assert (await stranger.get("/v1/gift-cards")).status_code == 403


async def test_a_delegated_budget_is_not_stolen_through_a_gift_card_or_a_gift(shop: Served) -> None:
    parent = await shop.stranger("parent")
    credit = {"id": "fund-parent", "sats": 50_000, "reason": "test"}
    assert (await shop.client.post("/v1/accounts/parent/adjust", credit)).status_code == 200
    thief = (await (await shop.stranger("thief")).get("/v1/accounts/me")).json()["account"]["public_id"]
    wish = {"name": "child", "scopes": ["account:manage", "account:read"], "budget_sats": 49_000}
    made = await parent.post("/v1/keys/delegated", wish)
    child = shop.as_(Credentials(made.json()["public_key"], made.json()["secret_key"]))
    for path, body in (
        ("/v1/gift-cards", {"cents": 700, "pay_with": "sats"}),
        ("/v1/transfers", {"to": thief, "sats": 40_000, "id": "mine", "reason": "to me"}),
    ):
        refused = await child.post(path, body)
        assert (refused.status_code, refused.json().get("reason")) == (403, "delegated_budget"), refused.text
    assert (await child.get("/v1/accounts/me")).json()["money"]["balance"] == 49_000


async def test_an_account_buys_a_card_from_its_sats_at_the_locked_rate(shop: Served) -> None:
    buyer = await shop.stranger("buyer")
    credit = {"id": "fund-buyer", "sats": 50_000, "reason": "test"}
    assert (await shop.client.post("/v1/accounts/buyer/adjust", credit)).status_code in (200, 201)
    made = await buyer.post("/v1/gift-cards", {"cents": 700, "pay_with": "sats"})
    assert made.status_code == 201, made.text
    # 7 dollars at 60,000 are 11,666.67 sats: what is paid is rounded up.
    assert (await buyer.get("/v1/accounts/me")).json()["money"]["balance"] == 50_000 - 11_667
    poor = await buyer.post("/v1/gift-cards", {"cents": 5000, "pay_with": "sats"})
    assert poor.status_code == 402
    back = await buyer.post(f"/v1/gift-cards/{made.json()['id']}/refund", {"to": "sats"})
    assert back.json()["sats"] == 11_666
    gone = await ask(shop, "/redeem", code=made.json()["code"])
    assert gone.status_code == 404


async def test_a_card_whose_answer_was_lost_is_paid_once_and_handed_over_by_the_repeat(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sats are taken and the card is made; the server dies before the answer."""
    buyer = await shop.stranger("buyer")
    credit = {"id": "fund-buyer", "sats": 50_000, "reason": "test"}
    await shop.client.post("/v1/accounts/buyer/adjust", credit)
    head, body = {"idempotency-key": "card-1"}, {"cents": 700, "pay_with": "sats"}

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    with monkeypatch.context() as dying:
        dying.setattr("sandboxer.store.idempotency.spend", die)
        assert (await buyer.post("/v1/gift-cards", body, headers=head)).status_code == 500
    # As at the next start.
    await shop.platform.store.write(abandon_all_in_flight)
    again = await buyer.post("/v1/gift-cards", body, headers=head)
    assert again.status_code == 201, again.text
    third = await buyer.post("/v1/gift-cards", body, headers=head)
    assert (third.status_code, third.json()["code"]) == (409, "conflict")
    assert (await buyer.get("/v1/accounts/me")).json()["money"]["balance"] == 50_000 - 11_667
    assert len((await shop.client.get("/v1/gift-cards")).json()["cards"]) == 1
    # Its words and its claim are good.
    balance = await ask(shop, "/balance", code=again.json()["code"])
    assert balance.json()["left_cents"] == 700, balance.text
    revoked = await ask(shop, f"/{again.json()['id']}/revoke", claim=again.json()["claim"])
    assert revoked.status_code == 200, revoked.text


async def test_what_cannot_be_is_refused_and_leaves_nothing(shop: Served) -> None:
    coin = {"cents": 1000, "currency": "LTC"}
    wrong: list[tuple[dict[str, object], int]] = [
        ({"cents": 699, "currency": "LTC"}, 422),
        ({"cents": 100_001, "currency": "LTC"}, 422),
        # No such chain is set up here; and no coin was named.
        (coin, 422),
        ({"cents": 1000}, 422),
        ({"cents": 1000, "pay_with": "sats"}, 401),
        ({"cents": 1000, "pay_with": "operator", "reason": "me"}, 401),
        ({**coin, "approval": {}}, 422),
        ({**coin, "approval": {"email": "a@example.org"}}, 422),
        ({**coin, "approval": {"webhook": "ftp://example.org"}}, 422),
        ({**coin, "cents": True}, 422),
        ({**coin, "cents": 1000.5}, 422),
        ({**coin, "cents": 10**30}, 422),
        ({**coin, "reason": "x" * 70_000}, 413),
    ]
    for body, status in wrong:
        answer = await ask(shop, "", **body)
        assert answer.status_code == status, (body, answer.text)
    assert (await shop.client.get("/v1/gift-cards")).json()["cards"] == []


async def test_only_the_owner_gives_cards_away_and_says_why(shop: Served) -> None:
    stranger = await shop.stranger()
    body = {"cents": 1000, "pay_with": "operator", "reason": "me"}
    assert (await stranger.post("/v1/gift-cards", body)).status_code == 403
    assert (await shop.client.post("/v1/gift-cards", {**body, "reason": " "})).status_code == 422
    made = await free_card(shop)
    log = (await shop.client.get("/v1/audit?limit=50")).text
    assert made["id"] in log
    assert made["code"] not in log


@flow("revokeGiftCard")
async def test_unknown_spent_and_revoked_words_are_answered_alike(shop: Served) -> None:
    spent, revoked = await free_card(shop, 700), await free_card(shop, 700)
    assert (await ask(shop, "/redeem", code=spent["code"])).status_code == 201
    assert (await ask(shop, f"/{revoked['id']}/revoke")).status_code == 401
    assert (await ask(shop, f"/{revoked['id']}/revoke", claim="x" * 43)).status_code == 403
    ended = await ask(shop, f"/{revoked['id']}/revoke", claim=revoked["claim"])
    assert (ended.status_code, ended.json()["state"], ended.json()["left_cents"]) == (200, "revoked", 0)
    answers = set()
    for code in (spent["code"], revoked["code"], "zoom-zoom-zoom-zoom"):
        for path in ("/balance", "/redeem"):
            answer = await ask(shop, path, code=code)
            problem = {k: v for k, v in answer.json().items() if k not in ("request_id", "instance")}
            answers.add((path, answer.status_code, str(problem)))
    assert len(answers) == 2


async def test_a_lost_answer_can_be_had_again_and_gives_nothing_twice(shop: Served) -> None:
    made = await free_card(shop)
    wanted = {"code": made["code"], "request_id": "0123456789abcdef", "cents": 1000}
    first = (await ask(shop, "/redeem", **wanted)).json()
    second = (await ask(shop, "/redeem", **wanted)).json()
    assert first == second
    assert second["left_cents"] == 4000
    await new_key(shop, second)
    other = await ask(shop, "/redeem", **{**wanted, "cents": 1001})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


async def test_more_than_is_left_is_refused_and_nothing_is_lost(shop: Served) -> None:
    made = await free_card(shop, 1000)
    refused = await ask(shop, "/redeem", code=made["code"], tier=1, months=3)
    assert refused.status_code == 409
    assert (refused.json()["required_cents"], refused.json()["available_cents"]) == (1953, 1000)
    assert (await ask(shop, "/balance", code=made["code"])).json()["left_cents"] == 1000


async def test_a_gift_never_lowers_somebodys_tier(shop: Served) -> None:
    made = await free_card(shop)
    high = (await ask(shop, "/redeem", code=made["code"], tier=2, months=1)).json()
    low = await ask(shop, "/redeem", code=made["code"], tier=1, months=1, account=high["account"])
    assert low.status_code == 409
    assert (await ask(shop, "/balance", code=made["code"])).json()["left_cents"] == 5000 - 1400


async def test_without_a_rate_no_sats_but_still_tiers_and_nothing_lost(tmp_path: Path) -> None:
    async with opened(shop_settings(tmp_path, fixed_rates={"USDC": "1"})) as served:
        made = await free_card(served)
        refused = await ask(served, "/redeem", code=made["code"])
        assert (refused.status_code, refused.json()["code"]) == (503, "no_rate")
        assert (await ask(served, "/balance", code=made["code"])).json()["left_cents"] == 5000
        assert (await ask(served, "/redeem", code=made["code"], tier=1, months=1)).status_code == 201


@flow("refundGiftCard")
async def test_the_rest_goes_back_to_the_buyers_address_less_nine_percent(
    coin_shop: Served, litecoin: Litecoin
) -> None:
    home = litecoin.call("getnewaddress")
    made = (await ask(coin_shop, "", cents=5000, currency="LTC", refund_address=home)).json()
    await pay(coin_shop, litecoin, made)
    code = (await ask(coin_shop, f"/{made['id']}/code", claim=made["claim"])).json()["code"]
    assert (await ask(coin_shop, "/redeem", code=code, tier=1, months=3)).json()["left_cents"] == 3047
    path = f"/{made['id']}/refund"
    assert (await ask(coin_shop, path, to="address", claim="y" * 43)).status_code == 403
    back = await ask(coin_shop, path, to="address", claim=made["claim"])
    assert back.status_code == 200, back.text
    paid = int(made["bill"]["atomic"])
    assert int(back.json()["atomic"]) == paid * 3047 // 5000 * 91 // 100
    (due,) = (await coin_shop.client.get("/v1/refunds?state=queued")).json()["refunds"]
    assert (due["amount_atomic"], due["address"], due["reason"]) == (back.json()["atomic"], home, "gift_card")
    assert (await ask(coin_shop, "/redeem", code=code)).status_code == 404
    assert (await ask(coin_shop, path, to="address", claim=made["claim"])).status_code == 409


async def test_guesses_cost_work_when_they_are_many_and_stop_at_the_budget(tmp_path: Path) -> None:
    policy = {"attempts_per_minute": 8, "work_bits": 8, "work_bits_most": 12}
    async with opened(shop_settings(tmp_path, gift_cards=policy)) as served:
        made = await free_card(served)
        guess = "zoom-zoom-zoom-zoom"
        for _ in range(4):
            assert (await ask(served, "/balance", code=guess)).status_code == 404
        # An honest one is asked for work, too; solved, it is served, and costs nothing of the budget.
        for _ in range(3):
            asked = await ask(served, "/balance", code=made["code"])
            assert (asked.status_code, asked.json()["code"]) == (428, "work_needed")
            problem = asked.json()
            work = {
                "challenge": problem["challenge"],
                "solution": solve(problem["challenge"], problem["bits"]),
            }
            assert (await ask(served, "/balance", code=made["code"], work=work)).status_code == 200
            assert (await ask(served, "/balance", code=made["code"], work=work)).status_code == 428
        bits = []
        for _ in range(4):
            problem = (await ask(served, "/balance", code=guess)).json()
            bits.append(problem["bits"])
            work = {
                "challenge": problem["challenge"],
                "solution": solve(problem["challenge"], problem["bits"]),
            }
            assert (await ask(served, "/balance", code=guess, work=work)).status_code == 404
        assert bits == sorted(bits)
        assert bits[-1] > bits[0]
        stopped = await ask(served, "/balance", code=guess)
        assert (stopped.status_code, "retry-after" in stopped.headers) == (429, True)


async def test_one_address_may_only_try_so_often(tmp_path: Path) -> None:
    async with opened(shop_settings(tmp_path, limit_auth=5)) as served:
        answers = [(await ask(served, "/balance", code="zoom-zoom-zoom-zoom")).status_code for _ in range(7)]
        assert answers == [404] * 5 + [429] * 2


async def test_a_reorg_takes_the_card_back_and_the_same_payment_gives_back_what_was_left(
    coin_shop: Served, litecoin: Litecoin
) -> None:
    made = (await ask(coin_shop, "", cents=5000, currency="LTC")).json()
    await pay(coin_shop, litecoin, made)
    code = (await ask(coin_shop, f"/{made['id']}/code", claim=made["claim"])).json()["code"]
    assert (await ask(coin_shop, "/redeem", code=code, tier=1, months=3)).json()["left_cents"] == 3047
    litecoin.reorg(6)
    look = f"/v1/invoices/{made['bill']['id']}/look"
    assert (await coin_shop.client.post(look, {})).status_code == 200
    taken = await until(coin_shop, f"/v1/gift-cards/{made['id']}", "reversed")
    assert taken["left_cents"] == 0
    assert (await ask(coin_shop, "/redeem", code=code)).status_code == 404
    assert (await coin_shop.platform.store.read(verify)).is_whole
    litecoin.mine(6)
    assert (await coin_shop.client.post(look, {})).status_code == 200
    back = await until(coin_shop, f"/v1/gift-cards/{made['id']}", "active")
    assert back["left_cents"] == 3047
    assert (await ask(coin_shop, "/redeem", code=code)).json()["sats"] == 50783


async def test_a_reorg_takes_the_refund_of_a_card_out_of_the_queue(
    coin_shop: Served, litecoin: Litecoin
) -> None:
    """Whoever signed it then would pay for what never arrived."""
    home = litecoin.call("getnewaddress")
    made = (await ask(coin_shop, "", cents=5000, currency="LTC", refund_address=home)).json()
    await pay(coin_shop, litecoin, made)
    code = (await ask(coin_shop, f"/{made['id']}/code", claim=made["claim"])).json()["code"]
    assert (await ask(coin_shop, "/redeem", code=code, tier=1, months=3)).json()["left_cents"] == 3047
    refund, queue = f"/{made['id']}/refund", "/v1/refunds?state=queued"
    look = f"/v1/invoices/{made['bill']['id']}/look"
    for _ in range(2):
        back = await ask(coin_shop, refund, to="address", claim=made["claim"])
        (due,) = (await coin_shop.client.get(queue)).json()["refunds"]
        assert due["amount_atomic"] == back.json()["atomic"], back.text
        litecoin.reorg(6)
        assert (await coin_shop.client.post(look, {})).status_code == 200
        await until(coin_shop, f"/v1/gift-cards/{made['id']}", "reversed")
        assert (await coin_shop.client.get(queue)).json()["refunds"] == []
        assert (await coin_shop.platform.store.read(verify)).is_whole
        # The same payment again: so is the card, and what is left of it may be had back.
        litecoin.mine(6)
        assert (await coin_shop.client.post(look, {})).status_code == 200
        again = await until(coin_shop, f"/v1/gift-cards/{made['id']}", "active")
        assert again["left_cents"] == 3047
        assert (await coin_shop.platform.store.read(verify)).is_whole


async def test_the_client_does_the_work_that_is_asked_for(tmp_path: Path) -> None:
    policy = {"attempts_per_minute": 8, "work_bits": 8, "work_bits_most": 12}
    async with opened(shop_settings(tmp_path, gift_cards=policy)) as served:
        made = await free_card(served)
        for _ in range(6):
            answer = await ask(served, "/balance", code="zoom-zoom-zoom-zoom")
        assert answer.status_code == 428
        owner = served.owner
        async with AsyncSandboxer(
            url=served.url, public_key=owner.public_key, secret_key=owner.secret_key
        ) as client:
            assert (await client.gift_cards.balance(made["code"])).left_cents == 5000
            done = await client.gift_cards.redeem(made["code"], cents=600, anonymous=True)
            assert (done.sats, done.left_cents, done.claim is None) == (10_000, 4400, False)
            own = await client.gift_cards.redeem(made["code"], cents=600)
            assert own.claim is None
            assert own.account != done.account
            ended = await client.gift_cards.revoke(made["id"], claim=made["claim"])
            assert ended.state == "revoked"

"""Redemptions that somebody must approve: by a mail from a real mail server, or by a signed webhook."""

from __future__ import annotations

import asyncio
import email
import re
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from sqlalchemy import select, update

from sandboxer.payments.tables import gift_mails, gift_redemptions
from sandboxer.sdk import webhooks
from tests.observe.webhooks.receivers import receiver as receiving
from tests.support.http.flows import flow
from tests.support.http.gift_cards import ask, free_card, new_key, opened, shop_settings
from tests.support.http.served import Served

BOSS = "boss@example.org"


class Postbox:
    """What a mail server got; it may be told to refuse first."""

    def __init__(self) -> None:
        self.got: list[tuple[list[str], Message]] = []
        self.refuse_next = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refuse_next:
            self.refuse_next -= 1
            return "451 come back later"
        content = envelope.content
        assert isinstance(content, bytes)
        self.got.append((envelope.rcpt_tos, email.message_from_bytes(content)))
        return "250 thank you"


@pytest.fixture
async def postbox() -> AsyncIterator[tuple[Postbox, int]]:
    box = Postbox()
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(box, hostname="mail.example.org"), "127.0.0.1", 0
    )
    async with server:
        yield box, server.sockets[0].getsockname()[1]


@pytest.fixture
async def shop(tmp_path: Path, postbox: tuple[Postbox, int]) -> AsyncIterator[Served]:
    settings = shop_settings(
        tmp_path,
        public_url="http://127.0.0.1:1",
        smtp_host="127.0.0.1",
        smtp_port=postbox[1],
        smtp_from="cards@example.org",
        smtp_tls="none",
    )
    async with opened(settings) as served:
        yield served


async def mailed(box: Postbox, count: int = 1) -> str:
    """The path of the link in the newest mail."""
    deadline = time.monotonic() + 15
    while len(box.got) < count:
        assert time.monotonic() < deadline, "no mail came"
        await asyncio.sleep(0.02)
    text = box.got[-1][1].get_payload(decode=True)
    assert isinstance(text, bytes)
    found = re.search(r"http://127\.0\.0\.1:1(/v1/gift-cards/approvals/\S+)", text.decode())
    assert found is not None, text
    return found[1]


async def waiting(served: Served, **more: object) -> dict[str, Any]:
    """A card of 50 dollars that asks the boss, and a redemption that waits."""
    made = await free_card(served, approval={"email": BOSS})
    wanted = {"tier": 1, "months": 3, **more}
    answer = await ask(served, "/redeem", code=made["code"], **wanted)
    assert answer.status_code == 202, answer.text
    return {"card": made, **answer.json()}


@flow("showApproval", "approveRedemption", "getRedemption")
async def test_a_mail_asks_looking_changes_nothing_and_one_answer_counts(
    shop: Served, postbox: tuple[Postbox, int]
) -> None:
    box, _ = postbox
    asked = await waiting(shop)
    assert (asked["state"], asked["left_cents"], asked["public_key"]) == ("pending_approval", 3047, None)
    link = await mailed(box)
    (to, message) = box.got[0]
    assert to == [BOSS]
    assert message["To"] == BOSS
    assert message["Subject"] == "Approve $19.53 of a gift card?"
    http = shop.client.http
    # A preview looks, more than once, and nothing happens.
    for _ in range(3):
        page = await http.get(link)
        assert page.status_code == 200
        assert "<button>Approve</button>" in page.text
        assert "form-action 'self'" in page.headers["content-security-policy"]
        assert (await http.head(link)).status_code in (200, 405)
    assert (await http.get(f"{link}/approve")).status_code in (401, 405)
    followed = await http.get(f"/v1/gift-cards/redemptions/{asked['id']}")
    assert followed.json()["state"] == "pending_approval"
    done = await http.post(f"{link}/approve")
    assert (done.status_code, done.json()["state"]) == (200, "granted"), done.text
    replayed = await http.post(f"{link}/approve")
    assert (replayed.status_code, replayed.json()["reason"]) == (409, "already_answered")
    assert (await http.post(f"{link}/deny")).status_code == 409
    assert "nothing more to answer" in (await http.get(link)).text
    client = await new_key(shop, {**done.json(), "claim": asked["claim"]})
    assert (await client.get("/v1/accounts/me")).json()["account"]["tier"] == 1
    left = await ask(shop, "/balance", code=asked["card"]["code"])
    assert left.json()["left_cents"] == 3047


@flow("denyRedemption")
async def test_denied_the_amount_is_on_the_card_again(shop: Served, postbox: tuple[Postbox, int]) -> None:
    asked = await waiting(shop)
    link = await mailed(postbox[0])
    headers = {"accept": "text/html", "content-type": "application/x-www-form-urlencoded"}
    page = await shop.client.http.post(f"{link}/deny", headers=headers)
    assert page.status_code == 200
    assert "denied" in page.text
    card = (await shop.client.http.get(f"/v1/gift-cards/{asked['card']['id']}")).json()
    assert (card["left_cents"], card["held_cents"], card["state"]) == (5000, 0, "active")
    assert (await shop.client.http.post(f"{link}/approve")).status_code == 409


async def test_a_link_that_was_changed_or_made_up_is_none(shop: Served, postbox: tuple[Postbox, int]) -> None:
    asked = await waiting(shop)
    link = await mailed(postbox[0])
    path, _, token = link.rpartition("/")
    id, expires, mac = token.split(".")
    other = "rdm_" + "0" * 26
    for forged in (
        f"{id}.{expires}.{'0' * 64}",
        f"{id}.{int(expires) + 1}.{mac}",
        f"{other}.{expires}.{mac}",
        f"{id}.{expires}.{mac[::-1]}",
    ):
        for method, end in (("GET", ""), ("POST", "/approve"), ("POST", "/deny")):
            answer = await shop.client.http.request(method, f"{path}/{forged}{end}")
            assert answer.status_code == 404, (method, forged)
    assert (await shop.client.http.get(f"{path}/{token}0")).status_code == 422
    assert (await shop.client.http.post(f"{path}/{'x' * 5000}/approve")).status_code in (404, 414, 422)
    seen = await shop.client.http.get(f"/v1/gift-cards/redemptions/{asked['id']}")
    assert seen.json()["state"] == "pending_approval"


async def test_a_mail_server_that_is_busy_is_asked_again(shop: Served, postbox: tuple[Postbox, int]) -> None:
    box, _ = postbox
    box.refuse_next = 1
    asked = await waiting(shop)
    store = shop.platform.store
    found = select(gift_mails).where(gift_mails.c.redemption == asked["id"])
    deadline = time.monotonic() + 10
    while True:
        mail = await store.read(lambda conn: conn.execute(found).one_or_none())
        if mail is not None and mail.tries == 1:
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert mail.state == "retrying"
    assert "451 come back later" in mail.reason
    await mailed(box)
    assert len(box.got) == 1


async def test_without_an_answer_in_time_the_amount_comes_back_by_itself(
    shop: Served, postbox: tuple[Postbox, int]
) -> None:
    asked = await waiting(shop)
    link = await mailed(postbox[0])
    past = shop.platform.clock.now() - timedelta(seconds=1)
    late = update(gift_redemptions).where(gift_redemptions.c.id == asked["id"]).values(expires_at=past)
    await shop.platform.store.write(lambda conn: conn.execute(late).rowcount)
    # The signature on the link still says later; the record decides.
    assert (await shop.client.http.post(f"{link}/approve")).status_code == 409
    await free_card(shop)
    deadline = time.monotonic() + 10
    while True:
        seen = (await shop.client.http.get(f"/v1/gift-cards/redemptions/{asked['id']}")).json()
        if seen["state"] == "expired":
            break
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.05)
    assert seen["left_cents"] == 5000


async def test_revoking_cancels_what_waits(shop: Served, postbox: tuple[Postbox, int]) -> None:
    asked = await waiting(shop)
    link = await mailed(postbox[0])
    card = asked["card"]
    assert (await ask(shop, f"/{card['id']}/revoke", claim=card["claim"])).status_code == 200
    seen = (await shop.client.http.get(f"/v1/gift-cards/redemptions/{asked['id']}")).json()
    assert seen["state"] == "cancelled"
    assert (await shop.client.http.post(f"{link}/approve")).status_code == 409


async def test_who_has_the_code_cannot_flood_the_one_who_approves(
    shop: Served, postbox: tuple[Postbox, int]
) -> None:
    made = await free_card(shop, approval={"email": BOSS})
    answers = [(await ask(shop, "/redeem", code=made["code"], cents=10)).status_code for _ in range(8)]
    assert answers == [202] * 5 + [429] * 3


ADDRESSES = (
    "boss@example.org\r\nBcc: all@example.org",
    "boss@example.org\nSubject: hi",
    "boss@example.org, other@example.org",
    "Boss <boss@example.org>",
    "boss@example.org>\r\nRCPT TO:<x@example.org",
    "böss@example.org",
    "boss@localhost",
    "@example.org",
    "a" * 250 + "@example.org",
    "boss\x00@example.org",
    "boss@[127.0.0.1]",
)


async def test_an_address_carries_one_recipient_and_no_header(shop: Served) -> None:
    for address in ADDRESSES:
        body = {"cents": 1000, "pay_with": "operator", "reason": "x", "approval": {"email": address}}
        answer = await shop.client.post("/v1/gift-cards", body)
        assert answer.status_code == 422, (address, answer.text)


async def test_a_webhook_asks_signed_with_the_cards_own_secret(
    shop: Served, postbox: tuple[Postbox, int]
) -> None:
    async with receiving() as receiver:
        made = await free_card(shop, approval={"webhook": receiver.url})
        asked = await ask(shop, "/redeem", code=made["code"], cents=2000)
        assert asked.status_code == 202, asked.text
        deadline = time.monotonic() + 15
        while not receiver.got:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        (got,) = receiver.got
        text = webhooks.verify(made["approval_secret"], got.headers, got.body)
        assert text["data"]["cents"] == 2000
        path = str(text["data"]["approve"]).removeprefix("http://127.0.0.1:1")
        done = await shop.client.http.post(path)
        assert (done.status_code, done.json()["sats"]) == (200, 33333), done.text
    assert postbox[0].got == []

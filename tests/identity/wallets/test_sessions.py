"""Signing in with a wallet, and everything that must not open a session."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pyseto
import pytest
from sqlalchemy import func, select

from sandboxer.identity.keys import Caller
from sandboxer.identity.sessions.challenges import Challenges
from sandboxer.identity.sessions.sessions import OpenedSession, WalletSessions
from sandboxer.identity.sessions.tokens import (
    Claims,
    TokenKey,
    TokenKeys,
    derive_key,
    load_token_keys,
    require_session_secret,
    session_token,
)
from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.identity.tables import challenges, wallet_sessions
from sandboxer.kernel.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from sandboxer.observe.events import Events
from sandboxer.store.databases import open_database
from sandboxer.store.engine import Store
from tests.identity.wallets.vectors import load
from tests.support.identity import START, StillClock
from tests.support.signers import Signer
from tests.support.wallets import DOMAIN, SEAL, SECRET, Door, open_door

ALICE, BOB = Signer.named("alice"), Signer.named("bob")
KEY = b"k" * 32


async def sign_in(door: Door, signer: Signer = ALICE) -> OpenedSession:
    challenge = await door.identity.sessions.challenge()
    return await door.identity.sessions.open_session(challenge.nonce, signer.sign_evm(challenge.message))


def reason(caught: pytest.ExceptionInfo[Unauthenticated]) -> object:
    assert caught.value.facts["why"]
    assert caught.value.facts["hint"]
    return caught.value.facts["reason"]


async def test_a_wallet_signs_in_and_its_account_stays_the_same(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    assert len(challenge.nonce) == 64
    assert challenge.nonce in challenge.message
    assert DOMAIN in challenge.message
    assert (challenge.expires_at - door.clock.now()).total_seconds() == pytest.approx(300, abs=1)
    first = await door.identity.sessions.open_session(challenge.nonce, ALICE.sign_evm(challenge.message))
    assert first.token.startswith("v4.local.")
    assert first.address == f"eip155:1:{ALICE.evm}"
    assert (first.expires_at - door.clock.now()).total_seconds() == pytest.approx(3600, abs=1)
    caller = await door.identity.sessions.authenticate(first.token)
    assert caller == Caller(public_key=first.address, account=first.account)
    assert (await sign_in(door)).account == first.account
    assert (await sign_in(door, BOB)).account != first.account
    kinds = [event.kind for event in await Events(door.store).page(first.account)]
    assert kinds == ["wallet.linked", "session.opened", "session.opened"]


async def test_bitcoin_and_stacks_wallets_sign_in_too(door: Door) -> None:
    for address, sign in ((ALICE.btc, ALICE.sign_btc), (ALICE.stx, ALICE.sign_stx)):
        challenge = await door.identity.sessions.challenge()
        opened = await door.identity.sessions.open_session(challenge.nonce, sign(challenge.message), address)
        assert opened.address.endswith(":" + address)
        assert (await door.identity.sessions.authenticate(opened.token)).account == opened.account


async def test_the_spelling_of_an_address_makes_no_second_account(door: Door) -> None:
    accounts = set()
    for address in (None, ALICE.evm, "0x" + ALICE.evm[2:].upper(), f"eip155:8453:{ALICE.evm}"):
        challenge = await door.identity.sessions.challenge()
        signature = ALICE.sign_evm(challenge.message)
        opened = await door.identity.sessions.open_session(challenge.nonce, signature, address)
        accounts.add(opened.account)
    assert len(accounts) == 1


async def test_wallets_of_test_networks_are_refused_unless_allowed(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    with pytest.raises(Forbidden, match="main networks"):
        await door.identity.sessions.open_session(
            challenge.nonce, ALICE.sign_stx(challenge.message), ALICE.stx_testnet
        )


async def test_a_nonce_works_once(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    signature = ALICE.sign_evm(challenge.message)
    await door.identity.sessions.open_session(challenge.nonce, signature)
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(challenge.nonce, signature)
    assert reason(caught) == "bad_nonce"


async def test_a_wrong_signature_burns_the_nonce(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(challenge.nonce, BOB.sign_evm(challenge.message), ALICE.evm)
    assert reason(caught) == "bad_signature"
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(challenge.nonce, ALICE.sign_evm(challenge.message))
    assert reason(caught) == "bad_nonce"


async def test_of_many_who_present_one_nonce_at_once_exactly_one_wins(door: Door) -> None:
    again = await door.restarted()
    for _ in range(5):
        challenge = await door.identity.sessions.challenge()
        signature = ALICE.sign_evm(challenge.message)
        won: list[OpenedSession] = []
        lost: list[Unauthenticated] = []

        async def attempt(
            where: Door,
            nonce: str = challenge.nonce,
            signature: str = signature,
            won: list[OpenedSession] = won,
            lost: list[Unauthenticated] = lost,
        ) -> None:
            try:
                won.append(await where.identity.sessions.open_session(nonce, signature))
            except Unauthenticated as error:
                lost.append(error)

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(attempt(door if number % 2 else again))
        assert (len(won), len(lost)) == (1, 9)


async def test_two_processes_racing_for_one_nonce_have_one_winner(database_url: str, store: Store) -> None:
    clock = StillClock()
    other_store = Store(open_database(database_url))
    try:
        one, two = Challenges(store, clock, key=KEY), Challenges(other_store, clock, key=KEY)
        for _ in range(10):
            nonce = one.seal("session").nonce
            outcomes: list[str] = []

            async def take(table: Challenges, nonce: str = nonce, outcomes: list[str] = outcomes) -> None:
                try:
                    await table.take("session", nonce)
                    outcomes.append("won")
                except Unauthenticated:
                    outcomes.append("lost")

            async with asyncio.TaskGroup() as group:
                group.create_task(take(one))
                group.create_task(take(two))
            assert sorted(outcomes) == ["lost", "won"]
    finally:
        await other_store.close()


@pytest.mark.parametrize(
    "nonce", ["", "0" * 64, "0" * 63, "0" * 100_000, "é" * 64, "' OR 1=1 --", "\x00", "%"]
)
async def test_nonces_that_were_never_handed_out_open_nothing(door: Door, nonce: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(nonce, ALICE.sign_evm("x"))
    assert reason(caught) == "bad_nonce"


async def test_a_nonce_that_is_too_old_opens_nothing_and_is_forgotten(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    door.clock.moment = challenge.expires_at
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(challenge.nonce, ALICE.sign_evm(challenge.message))
    assert reason(caught) == "bad_nonce"


async def test_a_challenge_for_one_purpose_is_worth_nothing_for_another(door: Door) -> None:
    link = await door.identity.sessions.challenge(link_to="acc_x")
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.open_session(link.nonce, ALICE.sign_evm(link.message))
    assert reason(caught) == "bad_nonce"
    # Not even burned by the attempt: strangers must not end others' challenges.
    await door.identity.sessions.link_wallet("acc_x", link.nonce, ALICE.evm, ALICE.sign_evm(link.message))


async def test_strangers_who_ask_and_never_sign_take_nobodys_place(store: Store) -> None:
    """10,000 of them were kept, and then some were dropped: an attacker of many networks chose which."""
    table = Challenges(store, StillClock(), key=KEY, capacity=1)
    proof = await table.issue("second-proof", account="acc")
    asked = [table.seal("session") for _ in range(5)]
    count = select(func.count()).select_from(challenges)
    assert await store.read(lambda conn: conn.execute(count).scalar()) == 1
    for one in asked:
        with pytest.raises(Unauthenticated):
            await table.take("siwx", one.nonce)
        await table.take("session", one.nonce)
        with pytest.raises(Unauthenticated):
            await table.take("session", one.nonce)
    await table.take("second-proof", proof.nonce)


async def test_an_account_that_asks_a_lot_drops_its_own_challenges(store: Store) -> None:
    clock = StillClock()
    table = Challenges(store, clock, key=KEY, capacity=4)
    mine = await table.issue("second-proof", account="mine")
    for _ in range(9):
        clock.moment += timedelta(seconds=1)
        theirs = await table.issue("second-proof", account="theirs")
    await table.take("second-proof", mine.nonce)
    await table.take("second-proof", theirs.nonce)


async def test_one_account_cannot_use_up_the_challenges_of_all(store: Store) -> None:
    table = Challenges(store, StillClock(), key=KEY, capacity_per_account=2)
    await table.issue("second-proof", account="mallory")
    await table.issue("second-proof", account="mallory")
    with pytest.raises(Unavailable, match="this account"):
        await table.issue("second-proof", account="mallory")
    await table.issue("second-proof", account="alice")


async def test_a_session_ends_after_an_hour(door: Door) -> None:
    opened = await sign_in(door)
    await door.identity.sessions.authenticate(opened.token)
    door.clock.moment = opened.expires_at
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.sessions.authenticate(opened.token)
    assert reason(caught) == "session_expired"
    assert await door.identity.sessions.revoke(opened.token) is False


async def test_sessions_and_revocations_survive_a_restart(door: Door) -> None:
    kept, ended = await sign_in(door), await sign_in(door)
    await door.identity.sessions.authenticate(ended.token)
    assert await door.identity.sessions.revoke(ended.token) is True
    assert await door.identity.sessions.revoke(ended.token) is False
    again = await door.restarted()
    for place in (door, again):
        assert (await place.identity.sessions.authenticate(kept.token)).account == kept.account
        with pytest.raises(Unauthenticated) as caught:
            await place.identity.sessions.authenticate(ended.token)
        assert reason(caught) == "bad_session"


async def test_an_authentication_racing_a_revocation_does_not_keep_the_session_alive(door: Door) -> None:
    for _ in range(10):
        opened = await sign_in(door)

        async def look(token: str = opened.token) -> None:
            try:
                await door.identity.sessions.authenticate(token)
            except Unauthenticated:
                return

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(look())
            group.create_task(door.identity.sessions.revoke(opened.token))
        with pytest.raises(Unauthenticated):
            await door.identity.sessions.authenticate(opened.token)


async def test_a_revocation_by_another_process_takes_hold_within_a_minute(door: Door) -> None:
    opened = await sign_in(door)
    await door.identity.sessions.authenticate(opened.token)
    await (await door.restarted()).identity.sessions.revoke(opened.token)
    door.clock.moment += timedelta(seconds=61)
    with pytest.raises(Unauthenticated):
        await door.identity.sessions.authenticate(opened.token)


async def test_a_revoked_wallet_loses_its_sessions_and_cannot_sign_in(door: Door) -> None:
    opened, other = await sign_in(door), await sign_in(door, BOB)
    await door.identity.sessions.authenticate(opened.token)
    with pytest.raises(NotFound):
        await door.identity.wallets.revoke(other.account, opened.address, actor="bob")
    await door.identity.wallets.revoke(opened.account, opened.address, actor="alice")
    await door.identity.wallets.revoke(opened.account, opened.address, actor="alice")
    for place in (door, await door.restarted()):
        with pytest.raises(Unauthenticated):
            await place.identity.sessions.authenticate(opened.token)
        with pytest.raises(Unauthenticated) as caught:
            await sign_in(place)
        assert reason(caught) == "wallet_revoked"
    await door.identity.sessions.authenticate(other.token)


async def test_all_sessions_of_a_wallet_can_be_ended(door: Door) -> None:
    opened = [await sign_in(door) for _ in range(3)]
    other = await sign_in(door, BOB)
    assert await door.identity.sessions.revoke_all(opened[0].address) == 3
    for session in opened:
        with pytest.raises(Unauthenticated):
            await door.identity.sessions.authenticate(session.token)
    await door.identity.sessions.authenticate(other.token)


async def test_sessions_are_bounded_per_wallet_and_per_network(store: Store) -> None:
    clock = StillClock()
    door = await open_door(store, clock)
    sessions = WalletSessions(
        store,
        clock,
        tokens=TokenKeys([derive_key(SECRET)]),
        challenges=door.identity.challenges,
        wallets=door.identity.wallets,
        domain=DOMAIN,
        capacity_per_wallet=2,
        capacity_per_network=3,
    )
    door.identity = replace(door.identity, sessions=sessions)
    first = await sign_in(door)
    await sessions.authenticate(first.token)
    clock.moment += timedelta(seconds=1)
    second = await sign_in(door)
    clock.moment += timedelta(seconds=1)
    third = await sign_in(door)
    with pytest.raises(Unauthenticated):
        await sessions.authenticate(first.token)
    for kept in (second, third):
        await sessions.authenticate(kept.token)
    # However many wallets strangers of one network make, they end their own sessions alone.
    crowd = []
    for number in range(10):
        wallet = wallet_of(Signer.named(f"stranger {number}").evm)
        crowd.append(await sessions.open_for(wallet, network="198.51.100.0/24"))
        clock.moment += timedelta(seconds=1)
    for ended in crowd[:-3]:
        with pytest.raises(Unauthenticated):
            await sessions.authenticate(ended.token)
    for kept in (second, third, *crowd[-3:]):
        await sessions.authenticate(kept.token)
    carol = await sessions.open_for(wallet_of(Signer.named("carol").evm), network="203.0.113.0/24")
    await sessions.authenticate(carol.token)
    clock.moment += timedelta(seconds=3601)
    await sign_in(door, Signer.named("carol"))
    count = select(func.count()).select_from(wallet_sessions)
    assert await store.read(lambda conn: conn.execute(count).scalar()) == 1


async def test_forged_cut_and_foreign_tokens_open_nothing(door: Door) -> None:
    opened = await sign_in(door)
    token = opened.token
    claims = Claims(
        session_id="ses_x", address=opened.address, issued_at=START, expires_at=START + timedelta(hours=1)
    )
    right_key = pyseto.Key.new(version=4, purpose="local", key=derive_key(SECRET).key)
    payload = json.dumps({"jti": "x", "sub": opened.address, "iat": "x", "exp": "x"}).encode()
    body, _, footer = token.rpartition(".")
    attempts = [
        "",
        "v4.local.",
        "v4.local.AAAA",
        token[:-1],
        token[: len(token) // 2],
        body,
        body + "." + footer[:-2],
        body + ".e30",
        token + "A",
        token + "." + footer,
        token.replace("v4.local.", "v4.public."),
        token.replace("v4.local.", "v3.local."),
        token.replace("v4.local.", "V4.LOCAL."),
        token[:20] + ("A" if token[20] != "A" else "B") + token[21:],
        "é" + token,
        token + "\n",
        "v4.local." + "A" * 100_000,
        # Another secret; the right secret but no such session; the right key for another use.
        TokenKeys([derive_key("x" * 40)]).seal(claims),
        TokenKeys([derive_key(SECRET)]).seal(claims),
        pyseto.encode(right_key, payload).decode(),
        pyseto.encode(right_key, payload, implicit_assertion=b"sandboxer-session-v1").decode(),
    ]
    for attempt in attempts:
        with pytest.raises(Unauthenticated) as caught:
            await door.identity.sessions.authenticate(attempt)
        assert reason(caught) == "bad_session"
        assert await door.identity.sessions.revoke(attempt) is False
    await door.identity.sessions.authenticate(token)


async def test_a_token_cannot_be_given_another_wallets_name(door: Door) -> None:
    """Even with the key: the row of the session says whose it is."""
    opened = await sign_in(door)
    keys = TokenKeys([derive_key(SECRET)])
    claims = keys.open(opened.token, door.clock.now())
    forged = keys.seal(
        Claims(
            session_id=claims.session_id,
            address=f"eip155:1:{BOB.evm}",
            issued_at=claims.issued_at,
            expires_at=claims.expires_at + timedelta(days=1),
        )
    )
    with pytest.raises(Unauthenticated):
        await door.identity.sessions.authenticate(forged)


async def test_linking_takes_the_asking_accounts_challenge_and_a_new_wallet(door: Door) -> None:
    sessions = door.identity.sessions
    stolen = await sessions.challenge(link_to="acc_alice")
    with pytest.raises(Unauthenticated):
        await sessions.link_wallet("acc_mallory", stolen.nonce, ALICE.evm, ALICE.sign_evm(stolen.message))
    challenge = await sessions.challenge(link_to="acc_alice")
    assert "acc_alice" in challenge.message
    await sessions.link_wallet("acc_alice", challenge.nonce, ALICE.evm, ALICE.sign_evm(challenge.message))
    assert (await sign_in(door)).account == "acc_alice"
    challenge = await sessions.challenge(link_to="acc_mallory")
    with pytest.raises(Conflict):
        await sessions.link_wallet(
            "acc_mallory", challenge.nonce, ALICE.evm, ALICE.sign_evm(challenge.message)
        )


async def test_without_a_secret_the_key_is_kept_sealed_and_sessions_survive(store: Store) -> None:
    clock = StillClock()
    opened = await sign_in(await open_door(store, clock, secret=None))
    again = await open_door(store, clock, secret=None)
    assert (await again.identity.sessions.authenticate(opened.token)).account == opened.account
    # The operator sets a secret: those who are signed in stay so.
    moved = await open_door(store, clock, secret=SECRET)
    assert (await moved.identity.sessions.authenticate(opened.token)).account == opened.account
    fresh = await sign_in(moved)
    with pytest.raises(Unauthenticated):
        await again.identity.sessions.authenticate(fresh.token)


async def test_production_refuses_to_start_without_its_secret(store: Store) -> None:
    for call in (
        lambda: require_session_secret(None, production=True),
        lambda: require_session_secret("short", production=False),
    ):
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert caught.value.facts["field"] == "SESSION_AUTH_SECRET"
        assert "openssl rand" in str(caught.value.facts["hint"])
    require_session_secret(None, production=False)
    with pytest.raises(InvalidRequest):
        await load_token_keys(store, SEAL, StillClock(), secret=None, production=True)
    await load_token_keys(store, SEAL, StillClock(), secret=SECRET, production=True)


@pytest.mark.parametrize("vector", load("paseto"))
def test_our_paseto_library_opens_what_another_made(vector: dict[str, str]) -> None:
    key = pyseto.Key.new(version=4, purpose="local", key=bytes.fromhex(vector["key"]))
    opened = pyseto.decode(key, vector["token"], implicit_assertion=vector["assertion"].encode())
    assert json.loads(opened.payload) == vector["payload"]
    assert opened.footer == vector["footer"].encode()


def test_a_session_is_read_from_the_head_and_never_beside_another_caller() -> None:
    bearer = (b"authorization", b"Bearer v4.local.abc.def")
    assert session_token([(b"host", b"x"), bearer]) == "v4.local.abc.def"
    assert session_token([(b"authorization", b"bearer  v4.local.abc.def")]) == "v4.local.abc.def"
    for other in (b"Bearer sbx-pk-x", b"Basic v4.local.x", b"v4.local.x", b"", b"Bearer"):
        assert session_token([(b"authorization", other), (b"x-signature", b"s")]) is None
    assert session_token([]) is None
    for beside in (
        bearer,
        (b"authorization", b"Bearer sbx-pk-x"),
        (b"x-signature", b"0"),
        (b"x-api-key", b"sbx-pk-x"),
        (b"x-nonce", b"n"),
    ):
        for headers in ([bearer, beside], [beside, bearer]):
            with pytest.raises(Unauthenticated) as caught:
                session_token(headers)
            assert caught.value.facts["reason"] == "two_callers"


def test_neither_token_nor_key_is_shown_by_accident() -> None:
    key = TokenKey(b"k" * 32)
    opened = OpenedSession(token="v4.local.secret", address="a", account="b", expires_at=START)
    assert "kkk" not in repr(key)
    assert "secret" not in repr(opened)
    assert key.kid not in key.key.hex()

"""The genesis gate, with a real registry over HTTP: who passes, and who must not."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from sandboxer.identity.genesis.gate import (
    GenesisGate,
    GenesisProof,
    HttpRegistry,
    RegistryEntry,
    Terms,
    btc_message,
    canonical,
    judge,
    proof_from_headers,
    read_answer,
    stx_message,
)
from sandboxer.identity.genesis.registry_server import RegistryApp
from sandboxer.kernel.errors import Forbidden, InvalidRequest, Refused, Unauthenticated, Unavailable
from sandboxer.store.engine import Store
from tests.identity.wallets.vectors import load
from tests.support.identity import StillClock
from tests.support.signers import Signer
from tests.support.wallets import DOMAIN, Door

AGENT, OTHER = Signer.named("agent"), Signer.named("other agent")
TERMS = Terms(domain=DOMAIN)
BASE = "http://registry.test"


def listed(signer: Signer, level: int = 2, **fields: object) -> dict[str, object]:
    return {"btcAddress": signer.btc, "stxAddress": signer.stx, "level": level, **fields}


class Counting(httpx.ASGITransport):
    asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return await super().handle_async_request(request)


class Gate:
    def __init__(self, door: Door) -> None:
        self.door = door
        self.app = RegistryApp([listed(AGENT), listed(OTHER)])
        self.transport = Counting(self.app)
        self.client = httpx.AsyncClient(transport=self.transport)
        self.registry = HttpRegistry(BASE, self.client, door.clock)
        self.gate = GenesisGate(self.registry, door.identity.challenges, door.clock, TERMS)

    async def proof(self, account: str = "acc", btc: Signer = AGENT, stx: Signer = AGENT) -> GenesisProof:
        challenge = await self.gate.challenge(account)
        blank = GenesisProof(
            btc_address=btc.btc,
            btc_signature="",
            stx_address=stx.stx,
            stx_signature="",
            timestamp=int(self.door.clock.now().timestamp()),
            nonce=challenge.nonce,
        )
        return signed(blank, account, btc, stx)


def signed(proof: GenesisProof, account: str, btc: Signer = AGENT, stx: Signer = AGENT) -> GenesisProof:
    return replace(
        proof,
        btc_signature=btc.sign_btc(btc_message(proof, account)),
        stx_signature=stx.sign_sip018(TERMS.sip018_domain, stx_message(proof, account)),
    )


@pytest.fixture
async def gate(door: Door) -> AsyncIterator[Gate]:
    made = Gate(door)
    yield made
    await made.client.aclose()


async def refused(gate: Gate, account: str, proof: GenesisProof | None) -> object:
    with pytest.raises(Refused) as caught:
        await gate.gate.admit(account, proof)
    assert caught.value.facts["hint"]
    return caught.value.facts["reason"]


async def test_a_registered_pair_of_level_two_passes_once_per_proof(gate: Gate) -> None:
    proof = await gate.proof()
    entry = await gate.gate.admit("acc", proof)
    assert (entry.btc_address, entry.stx_address, entry.level) == (AGENT.btc, AGENT.stx, 2)
    assert await refused(gate, "acc", proof) == "bad_nonce"


async def test_the_challenge_says_exactly_what_to_sign(gate: Gate) -> None:
    challenge = await gate.gate.challenge("acc")
    blank = GenesisProof(
        btc_address="B",
        btc_signature="",
        stx_address="S",
        stx_signature="",
        timestamp=7,
        nonce=challenge.nonce,
    )
    filled = challenge.btc_message.format(btc="B", stx="S", timestamp=7)
    assert filled == btc_message(blank, "acc")
    shown = {
        name: value.format(btc="B", stx="S", timestamp=7) for name, value in challenge.sip018_message.items()
    }
    said = stx_message(blank, "acc")
    assert isinstance(said, dict)
    assert {name: str(value.value) for name, value in said.items()} == shown


async def test_a_proof_by_bip_322_and_every_kind_of_address_is_understood() -> None:
    """The gate uses the one Bitcoin verifier; the vectors hold there. Here: it reads all kinds of address."""
    for vector in load("bip322"):
        assert canonical(vector["address"]) == vector["address"]


async def test_without_a_proof_the_caller_is_told_how_to_get_one(gate: Gate) -> None:
    assert await refused(gate, "acc", None) == "genesis_needed"


async def test_a_proof_is_worth_nothing_for_another_account(gate: Gate) -> None:
    proof = await gate.proof("alice")
    assert await refused(gate, "mallory", proof) == "bad_nonce"
    # Nor if the thief has a nonce of his own.
    own = await gate.gate.challenge("mallory")
    assert (
        await refused(gate, "mallory", replace(await gate.proof("alice"), nonce=own.nonce)) == "bad_signature"
    )


async def test_of_two_who_present_one_proof_at_once_one_passes(gate: Gate) -> None:
    proof = await gate.proof()
    outcomes: list[str] = []

    async def attempt() -> None:
        try:
            await gate.gate.admit("acc", proof)
            outcomes.append("passed")
        except Unauthenticated:
            outcomes.append("refused")

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(attempt())
    assert sorted(outcomes) == ["passed"] + ["refused"] * 5


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 1},
        {"btc_address": OTHER.btc},
        {"stx_address": OTHER.stx},
        {"btc_signature": OTHER.sign_btc("x")},
        {"stx_signature": "00" * 65},
        {"stx_address": AGENT.stx_testnet},
        {"stx_address": AGENT.stx.lower()},
        {"btc_address": "mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn"},
    ],
)
async def test_a_changed_proof_is_refused(gate: Gate, change: dict[str, object]) -> None:
    proof = replace(await gate.proof(), **change)  # type: ignore[arg-type]
    await refused(gate, "acc", proof)
    assert gate.transport.asked == 0


@pytest.mark.parametrize("skew", [-301, 301])
async def test_a_proof_of_another_time_is_refused(gate: Gate, skew: int) -> None:
    proof = await gate.proof()
    moved = signed(replace(proof, timestamp=proof.timestamp + skew), "acc")
    assert await refused(gate, "acc", moved) == "clock_skew"


async def test_two_honest_signatures_with_different_timestamps_are_refused(gate: Gate) -> None:
    proof = await gate.proof()
    later = signed(replace(proof, timestamp=proof.timestamp + 1), "acc")
    assert await refused(gate, "acc", replace(proof, stx_signature=later.stx_signature)) == "bad_signature"


async def test_two_registered_agents_are_no_pair(gate: Gate) -> None:
    """Both signatures hold, both addresses are known: but not as one agent's."""
    assert await refused(gate, "acc", await gate.proof(btc=AGENT, stx=OTHER)) == "other_pair"


async def test_a_registry_that_answers_for_another_agent_lets_nobody_pass(gate: Gate) -> None:
    gate.app._by_address[AGENT.btc] = listed(OTHER)
    with pytest.raises(Forbidden) as caught:
        await gate.gate.admit("acc", await gate.proof())
    assert caught.value.facts["reason"] == "other_pair"
    # With whom the registry pairs an address is nobody's business.
    assert OTHER.stx not in repr(caught.value.facts)


@pytest.mark.parametrize(("level", "passes"), [(0, False), (1, False), (2, True), (3, True)])
async def test_the_level_counts_by_its_number(gate: Gate, level: int, passes: bool) -> None:
    gate.app.set_agents([listed(AGENT, level, levelName="Genesis")])
    proof = await gate.proof()
    if passes:
        await gate.gate.admit("acc", proof)
    else:
        assert await refused(gate, "acc", proof) == "level_too_low"


async def test_strangers_to_the_registry_do_not_pass(gate: Gate) -> None:
    gate.app.set_agents([])
    assert await refused(gate, "acc", await gate.proof()) == "not_registered"
    # And an agent that registers is not kept waiting for an hour.
    gate.app.set_agents([listed(AGENT)])
    gate.door.clock.moment += timedelta(seconds=61)
    await gate.gate.admit("acc", await gate.proof())


async def test_answers_are_remembered_for_an_hour(gate: Gate) -> None:
    for _ in range(3):
        await gate.gate.admit("acc", await gate.proof())
    assert gate.transport.asked == 1
    gate.app.set_agents([listed(AGENT, 0)])
    gate.door.clock.moment += timedelta(hours=1, seconds=1)
    assert await refused(gate, "acc", await gate.proof()) == "level_too_low"


async def test_other_spellings_share_one_memory_and_cannot_poison_it(gate: Gate) -> None:
    segwit = "bc1q9vza2e8x573nczrlzms0wvx3gsqjx7vavgkx0l"
    gate.app.set_agents([{"btcAddress": segwit.upper(), "stxAddress": AGENT.stx, "level": 2}])
    first = await gate.registry.find(segwit)
    assert first is not None
    assert first.btc_address == segwit
    assert await gate.registry.find(segwit.upper()) == first
    assert gate.transport.asked == 1
    for wrong in (
        segwit[:-1] + segwit[-1].upper(),
        segwit + "%20",
        segwit + "/../" + AGENT.btc,
        segwit + "?x",
        AGENT.stx.lower(),
        AGENT.stx.replace("0", "O"),
        AGENT.btc.lower(),
        AGENT.btc + " ",
        "",
    ):
        if wrong not in (AGENT.btc, AGENT.stx):
            with pytest.raises(InvalidRequest):
                await gate.registry.find(wrong)
    assert gate.transport.asked == 1


async def test_the_memory_of_answers_is_bounded(door: Door) -> None:
    app = RegistryApp()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        registry = HttpRegistry(BASE, client, door.clock, capacity=3)
        for number in range(10):
            await registry.find(Signer.named(str(number)).btc)
        assert len(registry._memory) == 3


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (502, b""),
        (301, b""),
        (200, b""),
        (200, b"[]"),
        (200, b"null"),
        (200, b"{}"),
        (200, b'{"registered": true}'),
        (200, b'{"registered": "yes", "level": 2, "agent": {}}'),
        (200, b"[" * 60_000),
        (200, b"x" * 100_000),
        (429, b"{}"),
    ],
)
async def test_a_registry_out_of_order_lets_nobody_pass(
    door: Door, gate: Gate, status: int, body: bytes
) -> None:
    answers = httpx.MockTransport(lambda _: httpx.Response(status, content=body, headers={"location": BASE}))
    async with httpx.AsyncClient(transport=answers) as client:
        registry = HttpRegistry(BASE, client, door.clock)
        closed = GenesisGate(registry, door.identity.challenges, door.clock, TERMS)
        with pytest.raises(Unavailable) as caught:
            await closed.admit("acc", await gate.proof())
        assert caught.value.facts["reason"] == "registry_unavailable"
        assert not registry._memory


@pytest.mark.parametrize("level", ["2", 2.0, True, None, [2], {"$gt": 1}])
def test_a_level_that_is_no_number_is_no_level(level: object) -> None:
    body = json.dumps({"registered": True, "agent": listed(AGENT), "level": level}).encode()
    with pytest.raises(Unavailable):
        read_answer(body)


async def test_a_registry_that_is_down_or_slow_lets_nobody_pass(door: Door, gate: Gate) -> None:
    async def never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            writer.close()

    server = await asyncio.start_server(never_ends, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(trust_env=False) as client:
        for url in (f"http://127.0.0.1:{port}", "http://127.0.0.1:1"):
            registry = HttpRegistry(url, client, door.clock, timeout_s=0.3)
            closed = GenesisGate(registry, door.identity.challenges, door.clock, TERMS)
            with pytest.raises(Unavailable):
                await closed.admit("acc", await gate.proof())
    server.close()


def test_headers_make_a_proof_only_when_all_are_there_once() -> None:
    right = [
        (b"x-btc-address", b"B"),
        (b"x-btc-signature", b"s"),
        (b"x-btc-timestamp", b"17"),
        (b"x-stx-address", b"S"),
        (b"x-stx-signature", b"t"),
        (b"x-genesis-nonce", b"n"),
    ]
    proof = proof_from_headers([(b"host", b"x"), *right])
    assert proof is not None
    assert (proof.timestamp, proof.nonce) == (17, "n")
    assert proof_from_headers([*right, (b"x-stx-timestamp", b"17")]) == proof
    assert proof_from_headers([(b"host", b"x")]) is None
    for at in range(len(right)):
        with pytest.raises(Unauthenticated):
            proof_from_headers(right[:at] + right[at + 1 :])
        with pytest.raises(Unauthenticated):
            proof_from_headers([*right, right[at]])
    with pytest.raises(Unauthenticated):
        proof_from_headers([*right, (b"x-stx-timestamp", b"18")])
    with pytest.raises(Unauthenticated):
        proof_from_headers([*right[:2], (b"x-btc-timestamp", b"-1"), *right[3:]])


def test_the_judgement_needs_both_addresses_and_the_level() -> None:
    entry = RegistryEntry(btc_address="b", stx_address="s", level=2)
    assert judge(entry, btc_address="b", stx_address="s") is entry
    for btc, stx in (("b", "x"), ("x", "s"), ("s", "b")):
        with pytest.raises(Forbidden):
            judge(entry, btc_address=btc, stx_address=stx)
    with pytest.raises(Forbidden):
        judge(entry, btc_address="b", stx_address="s", level_needed=3)


async def test_the_registry_server_runs_by_itself_and_follows_its_file(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "agents.json"
    file.write_text(json.dumps([listed(AGENT)]))
    port = _free_port()
    command = [sys.executable, "-m", "sandboxer.identity.genesis.registry_server"]
    server = await asyncio.create_subprocess_exec(*command, "--file", str(file), "--port", str(port))
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            await _wait_for(client, f"http://127.0.0.1:{port}/api/verify/x")
            clock = StillClock()
            registry = HttpRegistry(f"http://127.0.0.1:{port}/", client, clock)
            for address in (AGENT.btc, AGENT.stx):
                found = await registry.find(address)
                assert found is not None
                assert found.level == 2
            file.write_text(json.dumps([listed(AGENT, 0), listed(OTHER)]))
            clock.moment += timedelta(hours=2)
            found = await registry.find(AGENT.btc)
            assert found is not None
            assert found.level == 0
    finally:
        server.terminate()
        await asyncio.wait_for(server.wait(), 10)


def test_a_registry_refuses_agents_that_share_an_address() -> None:
    with pytest.raises(InvalidRequest):
        RegistryApp([listed(AGENT), {**listed(OTHER), "stxAddress": AGENT.stx}])
    with pytest.raises(InvalidRequest):
        RegistryApp([{**listed(AGENT), "level": "2"}])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _wait_for(client: httpx.AsyncClient, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.get(url)
                return
            except httpx.TransportError:
                await asyncio.sleep(0.05)

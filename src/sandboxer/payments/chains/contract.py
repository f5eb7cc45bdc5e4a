"""The contract of a chain: one small protocol, whatever node is behind it.

An adapter trusts no answer: one that cannot be true (deeper than the chain is high, to an address nobody
asked for, a negative amount) is refused as `ChainUnavailable`, as if the node had not answered.

`CheckedChain` uses a chain only after its node proved to be the right one. It checks that before the first
question and again after every failure, because another node may be started at the same address.

Each payment rail is checked against the settings: at start, every hour, and more often while it is off.

A node of another chain, a token other than configured, or a server that lacks the newest blocks would accept
money that nobody can count. Such a rail is off, with a reason: it is not offered, no payment is accepted on
it, and nothing is concluded from its answers. It is turned on again without a restart once all is well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ChainUnavailable, SandboxerError
from sandboxer.kernel.values import brief_value_class
from sandboxer.payments.chains.addresses import MAINNET, Network

log = logging.getLogger(__name__)
DEADLINE = timedelta(seconds=8)
# A node that is only starting is tried again soon; one that stays off, seldom.
SOONEST = timedelta(seconds=1)
AGAIN_WHEN_OFF = timedelta(seconds=30)
AGAIN_WHEN_ON = timedelta(hours=1)

# None: all is as configured; else why not. May raise any SandboxerError instead.
Check = Callable[[], Awaitable[str | None]]
# Blocks come every minute to every ten; six hours without one happen to nobody who is connected.
OLDEST_TIP = timedelta(hours=6)
# Headers come before their blocks, so a node in step may lack one or two for a moment.
MOST_BEHIND = 3
# One look at one address. Slower ones leave no time for all that are watched.
LOOKUP_LIMIT = timedelta(seconds=4)


@brief_value_class
class Deposit:
    """One output to one of our addresses as the chain shows it now; the next look may differ."""

    chain: str
    txid: str
    # Which output of the transaction: its index, or for Monero the subaddress it went to.
    output: str
    address: str
    amount: int  # atomic units
    confirmations: int  # 0: in the mempool
    block: str | None = None  # hash
    height: int | None = None
    # Monero: False when the sender locked the output; such a deposit never counts.
    unlocked: bool = True
    # The node knows that it can no longer confirm: another transaction spent its inputs.
    conflicted: bool = False

    @property
    def id(self) -> str:
        return f"{self.txid}:{self.output}"


class Chain(Protocol):
    """Watch-only: hands out addresses and sees what arrives. Every method may raise `ChainUnavailable`."""

    code: str

    async def tip(self) -> int:
        """Height of the best block."""

    async def fresh_address(self, index: int) -> str:
        """The address of this index: the same each time where the chain allows.

        Raises `AddressUsed` if it ever received anything: after a restored backup an index may come twice,
        and another payer's old deposit must not pay a new invoice.
        """

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        """Return every output to these addresses, mempool included. One that vanished (reorg, double spend)
        is absent or `conflicted`, so an empty answer is no error, and each look replaces the one before.
        """

    def check_address(self, text: str) -> None:
        """Raises `InvalidRequest` unless text is an address of this chain and network."""

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        """Return the payment URI that a wallet scans."""


@runtime_checkable
class Checkable(Protocol):
    """A chain whose node can be asked what it is. Both methods may raise `ChainUnavailable`."""

    async def why_wrong(self) -> str | None:
        """Return why its answers may not be trusted: another chain or network, or not synchronised."""

    async def why_unready(self) -> str | None:
        """Return why no new address should be handed out: a part is missing, or a look-up takes too long."""


class Funds(Protocol):
    """What a spender of single outputs asks of a chain; Core-style and Esplora adapters have it."""

    code: str

    async def unspent(self, addresses: Sequence[str]) -> list[Deposit]:
        """Outputs to these addresses that no transaction has spent, mempool included on both sides."""

    async def broadcast(self, raw: bytes) -> str:
        """Hand a signed transaction to the network; its txid. Raises `Conflict` when the node refuses it; one
        that the network has already is no error, so the same bytes may be sent again after a timeout."""

    async def depth(self, txid: str) -> int | None:
        """How deep a transaction that spends from or pays to one of our addresses lies: 0 in the mempool,
        None where the network does not have it, or no longer."""

    async def fee_rate(self) -> int | None:
        """Atomic units for 1000 virtual bytes, as the node thinks right; None if it has no opinion."""


Answer = TypeVar("Answer")


class CheckedChain:
    """A `Chain` that checks another one before it uses it; one that cannot be checked is trusted as it is."""

    def __init__(self, chain: Chain) -> None:
        self.code = chain.code
        self._chain = chain
        self._checkable = chain if isinstance(chain, Checkable) else None
        self._is_proven = self._checkable is None

    async def check(self) -> str | None:
        """Return why it should not be offered; None if all is well. Raises ChainUnavailable."""
        if self._checkable is None:
            return None
        if (why := await self._prove(self._checkable)) is not None:
            return why
        return await self._checkable.why_unready()

    # -- Chain ---------------------------------------------------------------------------------------------

    async def tip(self) -> int:
        await self._refuse_unproven()
        return await self._asked(self._chain.tip())

    async def fresh_address(self, index: int) -> str:
        await self._refuse_unproven()
        return await self._asked(self._chain.fresh_address(index))

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        await self._refuse_unproven()
        return await self._asked(self._chain.deposits(addresses))

    def check_address(self, text: str) -> None:
        self._chain.check_address(text)

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        return self._chain.payment_uri(address, amount, label)

    # -- proof ---------------------------------------------------------------------------------------------

    async def _refuse_unproven(self) -> None:
        if self._is_proven or self._checkable is None:
            return
        if (why := await self._prove(self._checkable)) is not None:
            raise ChainUnavailable(chain=self.code, why=why)

    async def _prove(self, checkable: Checkable) -> str | None:
        self._is_proven = False
        why = await checkable.why_wrong()
        self._is_proven = why is None
        return why

    async def _asked(self, question: Awaitable[Answer]) -> Answer:
        try:
            return await question
        except ChainUnavailable:
            self._is_proven = self._checkable is None
            raise


async def why_slow(look_up: Awaitable[object]) -> str | None:
    """Return why an address cannot be handed out, if this look-up of one takes too long."""
    try:
        async with asyncio.timeout(LOOKUP_LIMIT.total_seconds()):
            await look_up
    except TimeoutError:
        return f"a look-up of one address took longer than {LOOKUP_LIMIT.total_seconds():.0f} s"
    return None


def why_another(network: Network, genesis: str) -> str | None:
    """Return why the node is of another chain: the first block tells coins and networks apart."""
    if genesis in network.genesis:
        return None
    return f"its node is not of {network.coin} {network.name}: its first block is {genesis[:16]}…"


def why_behind(network: Network, *, blocks: int, headers: int, is_reading: bool) -> str | None:
    """`is_reading`: the node itself says that it has not caught up. A test network that stands still says so
    for ever, so there only the numbers count."""
    if headers - blocks > MOST_BEHIND:
        return f"its node is not synchronised: {blocks} of {headers} blocks"
    if is_reading and network.name == MAINNET:
        return f"its node is not synchronised: it is still at block {blocks}"
    return None


def why_stale(network: Network, *, tip_time: int, now: float) -> str | None:
    """`tip_time`, `now`: unix seconds. A server that lost its peers shows an old chain as if it were all."""
    age = timedelta(seconds=now - tip_time)
    if network.name != MAINNET or age <= OLDEST_TIP:
        return None
    return f"its node is not synchronised: its newest block is {age.total_seconds() / 3600:.0f} hours old"


class Standings:
    """Knows which rails are off now, and why."""

    def __init__(self) -> None:
        self._off: dict[str, str] = {}

    def turn(self, rail: str, why_off: str | None) -> None:
        """Turn a rail off for this reason, or on with None."""
        self._off.pop(rail, None)
        if why_off is not None:
            self._off[rail] = why_off

    def why_off(self, rail: str) -> str | None:
        return self._off.get(rail)


class Rails:
    def __init__(self, standings: Standings, checks: Mapping[str, Check], clock: Clock) -> None:
        self._standings = standings
        self._checks = checks
        self._clock = clock

    async def check_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for rail, check in self._checks.items():
                group.create_task(self._check(rail, check))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for rail, check in self._checks.items():
                group.create_task(self._watch(rail, check))

    async def _watch(self, rail: str, check: Check) -> None:
        failures = 0
        while True:
            failures = 0 if self._standings.why_off(rail) is None else failures + 1
            await self._clock.sleep(pause_after(failures))
            await self._check(rail, check)

    async def _check(self, rail: str, check: Check) -> None:
        before = self._standings.why_off(rail)
        try:
            async with asyncio.timeout(DEADLINE.total_seconds()):
                why = await check()
        except TimeoutError:
            why = f"its node took longer than {DEADLINE.total_seconds():.0f} s to answer"
        except SandboxerError as error:
            why = str(error)
        except Exception as error:
            # Whatever a stranger's node answered: it is off, and the others are not.
            log.exception("%s could not be checked", rail)
            why = f"its node answered nonsense ({type(error).__name__})"
        self._standings.turn(rail, why)
        if why is not None and why != before:
            log.warning("payments on %s are off: %s", rail, why)
        elif why is None and before is not None:
            log.warning("payments on %s are on again", rail)


def pause_after(failures: int) -> timedelta:
    """How long until the next check, after so many in a row that found the rail off."""
    if not failures:
        return AGAIN_WHEN_ON
    return min(AGAIN_WHEN_OFF, SOONEST * (1 << min(failures - 1, 10)))

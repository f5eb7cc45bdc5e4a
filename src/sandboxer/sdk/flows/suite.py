"""Defines what a flow and a check of it are, and runs a check against a platform known by its address.

Whatever a check makes is taken back when it ends, also when it fails or is interrupted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

import httpx

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.aio.sandbox import AsyncSandbox
from sandboxer.sdk.confirmation import confirm_with_key
from sandboxer.sdk.credentials import NOBODY, Credentials, new_nonce, signed_headers, socket_of, trust_for
from sandboxer.sdk.errors import ApiError, NotFound
from sandboxer.sdk.exchange import Payer
from sandboxer.wire.accounts import Me
from sandboxer.wire.keys import NewDelegatedKey
from sandboxer.wire.platform import Discovery

T = TypeVar("T")
# One check, its sandboxes included; and twice as much to take back what it made.
TIMEOUT_S = 90.0
# What begins a name or a label that a run gave; what is left of one is found by it.
PREFIX = "flowcheck"
# Should a run be killed, what it made ends by itself.
TTL = "15m"
ENDING_S = 15.0
# What an account has to have so that anything is made of it.
LEAST_SATS = 20
# Of a key that may ask only so often: what it has to have left before a check begins, how long that is waited
# for, and how often a check is begun again for which it was not enough.
REQUESTS, PAUSE_S, LONGEST_PAUSE_S, MOST_PAUSES = 50, 4.0, 65.0, 2
# Refusals that say something of the caller and nothing of the flow.
OF_THE_CALLER = frozenset({"missing_scope", "no_slots"})


class CheckFailed(AssertionError):
    """The platform does not do what the flow says."""


class NotOffered(Exception):
    """The platform does not offer what the check is about, and says so itself."""


class NotTried(Exception):
    """Whoever runs the check did not bring what it needs: money, a wallet, a right."""


def expect(condition: object, message: str) -> None:
    """Raises CheckFailed unless the condition holds. Not `assert`: the suite must work under `python -O`."""
    if not condition:
        raise CheckFailed(message)


def expect_equal(seen: object, wanted: object, what: str) -> None:
    """Raises CheckFailed with both values unless they are equal."""
    expect(seen == wanted, f"{what} is {seen!r}, not {wanted!r}")


@dataclass(slots=True, kw_only=True)
class Bench:
    """Gives a check the platform, and things that are gone when it ends."""

    client: AsyncSandboxer
    # Requests of nobody in particular, and such as a check signs by itself.
    http: httpx.AsyncClient
    most_sats: int
    payer: Payer | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(3))
    # Of the check that runs.
    undo: AsyncExitStack = field(default_factory=AsyncExitStack)
    found: Discovery | None = None
    # What the account had when the run began.
    had_sats: int = 0
    # How many names were given, and how many of them when it was last looked at what is left.
    made: int = 0
    looked_at: int = 0

    def name(self, word: str) -> str:
        """A name that this run alone gives."""
        self.made += 1
        return f"{PREFIX}-{self.run}-{word}-{self.made}"

    @property
    def labels(self) -> dict[str, str]:
        return {PREFIX: self.run}

    async def discovered(self) -> Discovery:
        """Returns what the platform says of itself, asked for once."""
        if self.found is None:
            self.found = await self.client.discover()
        return self.found

    async def paced(self) -> None:
        """Waits until this key may ask as often as a check does."""
        deadline = time.monotonic() + LONGEST_PAUSE_S
        while time.monotonic() < deadline:
            limits = (await self.client.status.limits()).requests
            if all(one.left >= min(REQUESTS, one.per_minute * 3 // 4) for one in limits):
                return
            await asyncio.sleep(PAUSE_S)

    def takes_back(self, act: Callable[..., Awaitable[object]], *given: object) -> None:
        """Has this done when the check ends, however it ends."""
        self.undo.push_async_callback(_patiently, act, *given)

    async def spent(self) -> int:
        """Returns what the account has less than when the run began."""
        return max(0, self.had_sats - (await self.client.account.me()).money.balance)

    async def demand_charged(self, what: str) -> None:
        if not (await self.discovered()).is_charged:
            raise NotOffered(f"nothing is charged here, so there is no {what}")

    async def demand_sats(self, sats: int, what: str) -> Me:
        """Raises NotTried unless so many sats may be risked, and the account has them."""
        me = await self.client.account.me()
        if sats > self.most_sats:
            raise NotTried(f"{what} takes {sats} sats, and --most-sats allows {self.most_sats}")
        if me.money.available < sats:
            raise NotTried(f"{what} takes {sats} sats, and the account has {me.money.available}")
        return me

    async def demand_means(self) -> None:
        """Raises NotTried unless the account can pay for a few sandboxes of some seconds."""
        me = await self.client.account.me()
        pays = (await self.discovered()).is_charged and me.account.kind != "owner"
        if pays and me.money.available < LEAST_SATS:
            raise NotTried(f"it takes some sats, and the account has {me.money.available}")

    async def sandbox(self, **wish: Any) -> AsyncSandbox:
        """Makes a sandbox that is destroyed when the check ends."""
        await self.demand_means()
        wish.setdefault("name", self.name("sandbox"))
        made = await self.client.create(**{"ttl": TTL, "labels": self.labels, **wish})
        return self.ending(made)

    def ending(self, sandbox: AsyncSandbox) -> AsyncSandbox:
        self.takes_back(sandbox.destroy)
        return sandbox

    async def child(self, *scopes: str, budget_sats: int = 0, slots: int = 0) -> NewDelegatedKey:
        """Makes a key below this one, which is ended when the check ends."""
        if (await self.client.account.me()).depth < 1:
            raise NotTried("this key may delegate to none below it")
        name = self.name("key")
        made = await self.client.keys.delegate(name, scopes, budget_sats=budget_sats, slots=slots)
        self.takes_back(self._end_key, made.public_key)
        return made

    async def _end_key(self, public_key: str) -> None:
        try:
            await self.client.keys.revoke(public_key)
        except NotFound:
            return  # The check has ended it.

    def as_child(self, key: NewDelegatedKey, **instead: str) -> AsyncSandboxer:
        """A client with that key, or with what is given `instead`."""
        url = self.client.credentials.url
        known = {"public_key": key.public_key, "secret_key": key.secret_key, **instead}
        confirm = confirm_with_key(Credentials(known["public_key"], known["secret_key"], url))
        if "api_key" in instead:
            other = AsyncSandboxer(url=url, api_key=instead["api_key"])
        else:
            other = AsyncSandboxer(url=url, confirm=confirm, **known)  # type: ignore[arg-type]
        self.takes_back(other.close)
        return other

    def paying(self) -> AsyncSandboxer:
        """A client with the same key, whose wallet pays what it is asked for."""
        known = self.client.credentials
        other = AsyncSandboxer(
            url=known.url,
            public_key=known.public_key,
            secret_key=known.secret_key,
            api_key=known.bearer_token,
            wallet=self.payer,
        )
        self.takes_back(other.close)
        return other

    async def demand_capability(self, word: str) -> None:
        """Raises NotOffered unless one of the platform's backends can do this."""
        if not any(word in one.capabilities for one in (await self.client.capabilities()).backends):
            raise NotOffered(f"no backend here offers {word}")

    async def send(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        signs: bool = True,
    ) -> httpx.Response:
        """Sends a request as any HTTP client does, signed by what the platform's text says, or by nobody."""
        content = b"" if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json"} if content else {}
        if signs:
            given |= self.head(method, target, content)
        return await self.http.request(method, target, content=content, headers={**given, **(headers or {})})

    def head(
        self, method: str, target: str, content: bytes = b"", *, ago_s: float = 0, nonce: str = ""
    ) -> dict[str, str]:
        """Returns the headers of a signature with this key, made so many seconds ago."""
        return dict(
            signed_headers(
                self.client.credentials,
                method,
                target,
                hashlib.sha256(content).hexdigest(),
                timestamp=int(time.time() - ago_s),
                nonce=nonce or new_nonce(),
            )
        )

    def demand_key(self) -> None:
        """Raises NotTried unless requests are signed with a key."""
        known = self.client.credentials
        if known.bearer_token is not None or known.public_key in ("", NOBODY):
            raise NotTried("it needs a key with a secret (SANDBOXER_PUBLIC_KEY, SANDBOXER_SECRET_KEY)")

    async def leftovers(self) -> list[str]:
        """Returns what this run made and has not taken back."""
        of, begin = self.client, f"{PREFIX}-{self.run}-"
        left = [one.id async for one in of.list(labels=self.labels) if one.state not in GONE]
        left += [one.id async for one in of.snapshots.list(labels=self.labels) if one.state == "kept"]
        left += [
            one.id
            async for one in of.images.list(which="owned")
            if one.name.startswith(begin) and one.state not in GONE
        ]
        services = [one async for one in of.services.list() if one.state not in GONE]
        left += [one.id for one in services if one.name.startswith(begin)]
        sessions = [one async for one in of.sessions.list() if one.state not in GONE]
        left += [one.id for one in sessions if (one.name or "").startswith(begin)]
        if "keys:delegate" in (await of.account.me()).scopes:
            keys = [one.key for one in (await of.keys.tree()).children if one.key is not None]
            left += [one.public_key for one in keys if one.name.startswith(begin) and one.ended_at is None]
        return left


GONE = frozenset({"destroyed", "dropped", "removed", "ended"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One behaviour of a flow, as a plain sentence."""

    says: str
    # What an agent would lose on a platform that fails it.
    why: str
    run: Callable[[Bench], Awaitable[None]]


@dataclass(slots=True)
class Flow:
    """A flow of the self-sandbox algorithm, and the checks that are defined of it."""

    number: int
    title: str
    checks: list[Check] = field(default_factory=list)

    def check(self, why: str) -> Callable[[Callable[[Bench], Awaitable[None]]], Check]:
        """Adds a function; its name is the sentence."""

        def add(run: Callable[[Bench], Awaitable[None]]) -> Check:
            made = Check(says=run.__name__.replace("_", " "), why=why, run=run)
            self.checks.append(made)
            return made

        return add


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not_offered"
    NOT_TRIED = "not_tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    flow: int
    check: str
    why: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@asynccontextmanager
async def open_bench(
    client: AsyncSandboxer, *, most_sats: int, payer: Payer | None = None
) -> AsyncIterator[Bench]:
    """Opens what checks share. Raises whatever the platform says to a key that it does not know."""
    me = await client.account.me()
    url = client.credentials.url.rstrip("/")
    socket = socket_of(url)
    by = None if socket is None else httpx.AsyncHTTPTransport(uds=socket)
    base = url if socket is None else "http://localhost"
    async with httpx.AsyncClient(
        base_url=base, timeout=60.0, trust_env=False, verify=trust_for(base), transport=by
    ) as http:
        yield Bench(
            client=client,
            http=http,
            most_sats=most_sats,
            payer=payer,
            had_sats=me.money.balance,
        )


async def run_check(flow: Flow, check: Check, bench: Bench) -> CheckResult:
    """Runs one check. A failure of any kind is a result, not an error of this function."""
    began = time.monotonic()
    verdict, detail = Verdict.PASSED, ""
    for tries in range(MOST_PAUSES + 1):
        try:
            await bench.paced()
            if (spent := await bench.spent()) > bench.most_sats:
                raise NotTried(f"{spent} sats are spent, and --most-sats allows {bench.most_sats}")
            async with _taken_back(bench), asyncio.timeout(TIMEOUT_S):
                await check.run(bench)
        except NotOffered as why:
            verdict, detail = Verdict.NOT_OFFERED, str(why)
        except NotTried as why:
            verdict, detail = Verdict.NOT_TRIED, str(why)
        except ApiError as error:
            if (pause_s := _pause_of(error)) is not None and tries < MOST_PAUSES:
                await asyncio.sleep(pause_s)
                continue
            is_callers = error.reason in OF_THE_CALLER or error.code == "insufficient_credit"
            verdict = Verdict.NOT_TRIED if is_callers else Verdict.FAILED
            detail = f"the platform refused: {error}"
        except CheckFailed as failed:
            verdict, detail = Verdict.FAILED, str(failed)
        except Exception as error:
            # One of the outermost loops: whatever a foreign platform answers is its result.
            verdict, detail = Verdict.FAILED, f"{type(error).__name__}: {error}"
        break
    spent_s = time.monotonic() - began
    return CheckResult(
        flow=flow.number, check=check.says, why=check.why, verdict=verdict, detail=detail, seconds=spent_s
    )


async def _patiently(act: Callable[..., Awaitable[object]], *given: object) -> None:
    """Does it also where the platform has first to be given time."""
    for _ in range(MOST_PAUSES):
        try:
            await act(*given)
            return
        except ApiError as error:
            if (pause_s := _pause_of(error)) is None:
                raise
            await asyncio.sleep(pause_s)
    await act(*given)


def _pause_of(error: ApiError) -> float | None:
    """How long to wait before the check is tried again: its key, or this address, asked too often."""
    if error.status != 429:
        return None
    said = error.fact("retry_after_s")
    return min(float(said), LONGEST_PAUSE_S) if isinstance(said, int | float) else 15.0


@asynccontextmanager
async def _taken_back(bench: Bench) -> AsyncIterator[None]:
    """Takes back what is made meanwhile. What cannot be is told, unless something else failed before it."""
    bench.undo = AsyncExitStack()
    try:
        yield
    except BaseException:
        # What failed first is what is told; what is left is named at the flow's end.
        with suppress(Exception):
            async with asyncio.timeout(2 * TIMEOUT_S):
                await bench.undo.aclose()
        raise
    async with asyncio.timeout(2 * TIMEOUT_S):
        await bench.undo.aclose()


async def nothing_is_left(bench: Bench) -> None:
    """Raises CheckFailed with what the checks before it made and did not take back."""
    if bench.made == bench.looked_at:
        raise NotTried("nothing was made")
    bench.looked_at = bench.made
    left = await bench.leftovers()
    deadline = time.monotonic() + ENDING_S
    while left and time.monotonic() < deadline:
        # An end may have been answered before it is over.
        await asyncio.sleep(1.0)
        left = await bench.leftovers()
    expect(not left, f"it is still there: {', '.join(left)}")


async def refused(act: Awaitable[object], *statuses: int, what: str) -> ApiError:
    """Awaits `act`, which the platform has to refuse with one of these statuses."""
    try:
        await act
    except ApiError as error:
        if error.status not in statuses:
            raise CheckFailed(f"{what} was answered with {error.status}: {error}") from error
        return error
    raise CheckFailed(f"{what} was not refused")


async def sh(sandbox: AsyncSandbox, script: str, **more: Any) -> str:
    """Runs a shell script, which has to end with 0, and returns what it prints."""
    done = await sandbox.exec(script, **more)
    expect(done.exit_code == 0, f"`{script}` ended with {done.exit_code}: {done.stderr or done.stdout}")
    return str(done.stdout)


async def until(condition: Callable[[], Awaitable[T]], message: str, *, within_s: float = 20.0) -> T:
    """Asks over and over until the answer is true, for so long at most."""
    deadline, pause_s = time.monotonic() + within_s, 0.05
    while not (seen := await condition()):
        expect(time.monotonic() < deadline, message)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)
    return seen

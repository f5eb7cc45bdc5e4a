"""The proxy as a sandbox's relay reaches it, over a socket pair, in a world of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from sandboxer.access.egress.authority import Authority, make_authority
from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.policy import Packages, Rules
from sandboxer.access.egress.proxy.connection import EgressConnection
from sandboxer.access.egress.proxy.dialer import Dialer, Means, Network, Patience
from sandboxer.access.egress.proxy.wire import Wire
from sandboxer.access.egress.rules import Action, Policy, Rule, check_policy
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from tests.access.egress.world import Names, public_world


class Vault(dict[str, str]):
    async def value_of(self, account: str, name: str) -> str | None:
        return self.get(f"{account}/{name}")


@dataclass
class Call:
    """A connection as a program inside has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self, seconds: float = 10.0) -> bytes:
        """Everything up to the end."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def head(self, seconds: float = 10.0) -> bytes:
        async with asyncio.timeout(seconds):
            return await self.reader.readuntil(b"\r\n\r\n")


@dataclass
class Proxy:
    outlet: Outlet
    names: Names
    tasks: TaskOwner
    vault: Vault = field(default_factory=Vault)
    patience: Patience = field(default_factory=lambda: Patience(head_s=2, answer_s=2, idle_s=5))
    connect_s: float = 2.0
    never: Sequence[Network] = ()
    # Hosts that serve packages.
    mirrors: Sequence[str] = ()

    def rules(self, *hosts: str, **policy: object) -> None:
        self.outlet.change(rules_of(*hosts, **policy))

    async def call(self) -> Call:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await self.serve(ours)
        return Call(*await asyncio.open_unix_connection(sock=theirs))

    async def serve(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        connection = asyncio.get_running_loop().create_unix_connection
        if ours.family != socket.AF_UNIX:
            connection = asyncio.get_running_loop().create_connection  # type: ignore[assignment]
        _, client = await connection(lambda: Wire(self.outlet.heard), sock=ours)
        means = Means(
            dialer=Dialer(
                self.names,
                connect_s=self.connect_s,
                never=self.never,
                has_mirror=Packages(hosts=tuple(self.mirrors)).has,
            ),
            secrets=self.vault,
            now=lambda: datetime.now(UTC),
            patience=self.patience,
        )
        self.tasks.start(EgressConnection(self.outlet, client, means).run(), name="errand")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """For programs of others: a port on loopback, as inside."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)

            async def accept() -> None:
                while True:
                    await self.serve((await asyncio.get_running_loop().sock_accept(server))[0])

            async with own_tasks() as tasks:
                tasks.start(accept(), name="accept")
                yield server.getsockname()[1]

    async def ask(self, data: bytes) -> bytes:
        """What comes back for this and no more."""
        call = await self.call()
        try:
            call.writer.write(data)
            call.writer.write_eof()
            return await call.read()
        finally:
            call.writer.close()

    def denied(self) -> list[tuple[str, str]]:
        return [(one.host, one.reason) for one in self.outlet.denials.latest()]


def rules_of(*hosts: str, **policy: object) -> Rules:
    rules = tuple(Rule(action=Action.ALLOW, host=host) for host in hosts)
    more = tuple(policy.pop("more", ()))  # type: ignore[call-overload]
    return Rules(check_policy(Policy(rules=rules + more, **policy)))  # type: ignore[arg-type]


@pytest.fixture
def world() -> Iterator[None]:
    with public_world():
        yield


@pytest.fixture
async def proxy(world: None) -> AsyncIterator[Proxy]:
    now = datetime.now(UTC)
    outlet = Outlet(
        "sbx_00000000000000000000000000",
        "somebody",
        rules_of("example.com"),
        lambda: now,
        authority=Authority(make_authority("sbx_test", now)),
    )
    async with own_tasks() as tasks:
        yield Proxy(outlet, Names(example_com="93.184.215.14"), tasks)
    outlet.idle.close()


GET = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n"


def connect(authority: str) -> bytes:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()

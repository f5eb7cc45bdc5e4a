"""Connects to a name: it is resolved, judged, and dialled at exactly the address that was judged.

A host that serves packages may be a mirror near this one. Its address is taken, though it is not public, if
it proves there by TLS that it is that host, to an authority that this machine trusts; a name server that lies
leads nowhere.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from sandboxer.access.egress.outlet import Secrets
from sandboxer.access.egress.policy import Deny
from sandboxer.access.egress.proxy.wire import Count, Wire
from sandboxer.access.egress.rules import is_address
from sandboxer.kernel.addresses import DialJudge, Lookups, Network, TooManyLookups, Verdict
from sandboxer.kernel.values import value_class

RESOLVE_S = 5.0
# Look-ups under way of all sandboxes of an account: who has many would otherwise have many times as many.
NAMES_EACH = 16
CONNECT_S = 10.0
_TRIED = 3
_REMEMBERED, _REMEMBER_S = 1024, 5.0
_PROOF_S = 60.0


class Resolver(Protocol):
    async def addresses(self, host: str, *, owner: str) -> Sequence[str]:
        """Empty: there is no such name. Raises TooManyLookups."""


class Unreachable(Exception):
    """Allowed, but it did not come about: `status` is what the program inside is told."""

    def __init__(self, status: int, code: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.code = code
        self.why = why


class Refused(Exception):
    def __init__(self, deny: Deny) -> None:
        super().__init__(deny.why)
        self.deny = deny


@value_class
class Patience:
    # Time for a whole head, or for the first message of TLS.
    head_s: float = 20.0
    # Time for an upstream's answer to begin.
    answer_s: float = 120.0
    # Time without a byte of a body, or in either direction of a tunnel.
    idle_s: float = 600.0
    # Time for the next request on the same connection.
    next_s: float = 60.0


@value_class
class Means:
    dialer: Dialer
    secrets: Secrets
    now: Callable[[], datetime]
    patience: Patience = Patience()


class SystemResolver:
    """The host's own resolver. Its answers are cached for a few seconds and judged every time."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, Sequence[str]]] = OrderedDict()
        self._lookups = Lookups("egress", each=NAMES_EACH)

    async def addresses(self, host: str, *, owner: str) -> Sequence[str]:
        if (known := self._known.get(host)) is not None and known[0] > time.monotonic():
            return known[1]
        try:
            addresses = await self._lookups.addresses(host, owner=owner)
        except (OSError, UnicodeError):
            return ()
        self._known[host] = (time.monotonic() + _REMEMBER_S, addresses)
        self._known.move_to_end(host)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return addresses


class Dialer:
    def __init__(
        self,
        resolver: Resolver,
        *,
        connect_s: float = CONNECT_S,
        never: Sequence[Network] = (),
        has_mirror: Callable[[str, int], bool] = lambda host, port: False,
    ) -> None:
        """`never` are networks that cannot be reached, whatever the rules say; `has_mirror` says which hosts
        may be a mirror nearby, and at which ports.
        """
        self._resolver = resolver
        self._judge = DialJudge(never=never)
        self._mirrors = DialJudge(is_near=True, never=never)
        self._has_mirror = has_mirror
        self._connect_s = connect_s
        self._trust: ssl.SSLContext | None = None
        # Until when it is known whether an address is the mirror of a host.
        self._proven: dict[tuple[str, str], tuple[float, bool]] = {}

    async def dial(
        self,
        host: str,
        port: int,
        count: Count,
        wrote: Callable[[int], None],
        *,
        owner: str,
        denial_of: Callable[[str], Deny | None] = lambda address: None,
        is_tls: bool = False,
    ) -> Wire:
        """Connects on behalf of the account `owner`, to no address that `denial_of` has a word against.
        Raises Refused, Unreachable.
        """
        found = await self._judged(host, port, owner)
        addresses = [address for address in found if denial_of(address) is None]
        if not addresses and (deny := denial_of(found[0])) is not None:
            raise Refused(deny)
        context = self._trusting() if is_tls else None
        failure = Unreachable(502, "unreachable", f"{host} cannot be reached")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                for address in addresses[:_TRIED]:
                    try:
                        _, wire = await loop.create_connection(
                            lambda: Wire(count, wrote=wrote),
                            address,
                            port,
                            ssl=context,
                            server_hostname=host if is_tls else None,
                        )
                        if (deny := denial_of(address)) is not None:
                            # The rules changed while it was dialled.
                            wire.abort()
                            raise Refused(deny)
                        return wire
                    except ssl.SSLError as error:
                        failure = Unreachable(
                            502, "bad_certificate", f"TLS with {host} failed: {error.reason}"
                        )
                    except OSError as error:
                        why = f"{host} ({address}) port {port}: {error.strerror or 'no connection'}"
                        failure = Unreachable(502, "unreachable", why)
        except TimeoutError:
            raise Unreachable(
                504, "upstream_timed_out", f"{host} port {port} did not answer in time"
            ) from None
        raise failure

    def _trusting(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = ssl.create_default_context()
            self._trust.set_alpn_protocols(["http/1.1"])
        return self._trust

    async def _judged(self, host: str, port: int, owner: str) -> Sequence[str]:
        if is_address(host):
            found: Sequence[str] = (host,)
        else:
            try:
                async with asyncio.timeout(RESOLVE_S):
                    found = await self._resolver.addresses(host, owner=owner)
            except TooManyLookups as error:
                why = f"{error} for this account; {host} was not: ask for fewer new names at a time"
                raise Refused(Deny("too_many_names", why)) from None
            except TimeoutError:
                raise Unreachable(504, "name_timed_out", f"nobody said in time where {host} is") from None
        if not found:
            raise Unreachable(502, "no_such_name", f"there is no address for {host}")
        verdicts = {address: self._judge.judge(address) for address in found}
        public = [address for address, verdict in verdicts.items() if verdict is not Verdict.NOT_PUBLIC]
        if not public:
            if self._has_mirror(host, port) and (
                mirrors := [one for one in found if await self._is_mirror(host, one)]
            ):
                return mirrors
            raise Refused(
                Deny("not_public", f"{host} is {found[0]}, which is no public address of the world")
            )
        if not (good := [address for address in public if verdicts[address] is Verdict.GOOD]):
            why = f"{host} is {public[0]}, which is this host or what its operator keeps from sandboxes"
            raise Refused(Deny("own_address", why))
        return good

    async def _is_mirror(self, host: str, address: str) -> bool:
        """Says whether the host proves by TLS that it is at this address. Asked again after a while."""
        if self._mirrors.judge(address) is not Verdict.GOOD:
            return False
        until, is_proven = self._proven.get((host, address), (0.0, False))
        if until > time.monotonic():
            return is_proven
        try:
            async with asyncio.timeout(self._connect_s):
                _, writer = await asyncio.open_connection(
                    address, 443, ssl=self._trusting(), server_hostname=host
                )
            writer.close()
            is_proven = True
        except (OSError, TimeoutError):
            is_proven = False
        if len(self._proven) >= _REMEMBERED:
            self._proven.clear()
        self._proven[host, address] = (time.monotonic() + _PROOF_S, is_proven)
        return is_proven

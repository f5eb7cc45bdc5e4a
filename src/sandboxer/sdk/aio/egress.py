"""`sandbox.egress`, and `client.egress` for all of the account: what may be reached outside, with asyncio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import egress as routes
from sandboxer.wire import egress as wire


class AsyncEgress:
    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    async def show(self) -> wire.Egress:
        return await self._line.do(routes.show(self._sandbox_id))

    async def replace(
        self,
        *,
        default: str | None = None,
        rules: Sequence[Mapping[str, object]] = (),
        secrets: Sequence[Mapping[str, object]] = (),
        limits: Mapping[str, object] | None = None,
        version: int | None = None,
    ) -> wire.Egress:
        """The whole policy anew; felt at once."""
        wanted: dict[str, object] = {"default": default, "rules": list(rules), "secrets": list(secrets)}
        wanted |= {"limits": limits, "version": version}
        return await self._line.do(routes.change(self._sandbox_id, "PUT", wanted))

    async def allow(self, host: str, **more: object) -> wire.Egress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return await self._line.do(routes.change(self._sandbox_id, "PATCH", {"add": [rule]}))

    async def deny(self, host: str, **more: object) -> wire.Egress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return await self._line.do(routes.change(self._sandbox_id, "PATCH", {"add": [rule]}))

    async def remove(self, *rules: Mapping[str, object]) -> wire.Egress:
        return await self._line.do(routes.change(self._sandbox_id, "PATCH", {"remove": list(rules)}))

    async def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        return await self._line.do(routes.explain(self._sandbox_id, url, method))

    async def denials(self) -> Sequence[wire.EgressDenial]:
        return (await self._line.do(routes.denials(self._sandbox_id))).denials


class AsyncAccountEgress:
    """Rules that hold in all sandboxes of the account, beside each one's own."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def show(self) -> wire.AccountEgress:
        return await self._line.do(routes.show_account())

    async def replace(
        self, rules: Sequence[Mapping[str, object]], *, version: int | None = None
    ) -> wire.AccountEgress:
        """All of them anew; felt at once."""
        wanted: dict[str, object] = {"rules": list(rules), "version": version}
        return await self._line.do(routes.change_account("PUT", wanted))

    async def allow(self, host: str, **more: object) -> wire.AccountEgress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return await self._line.do(routes.change_account("PATCH", {"add": [rule]}))

    async def deny(self, host: str, **more: object) -> wire.AccountEgress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return await self._line.do(routes.change_account("PATCH", {"add": [rule]}))

    async def remove(self, *rules: Mapping[str, object]) -> wire.AccountEgress:
        return await self._line.do(routes.change_account("PATCH", {"remove": list(rules)}))

    async def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        """What these rules alone say."""
        return await self._line.do(routes.explain_account(url, method))

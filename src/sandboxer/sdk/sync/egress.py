"""`sandbox.egress`, and `client.egress` for all of the account: what may be reached outside, blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.routes import egress as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import egress as wire


class Egress:
    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def show(self) -> wire.Egress:
        return self._line.do(routes.show(self._sandbox_id))

    def replace(
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
        return self._line.do(routes.change(self._sandbox_id, "PUT", wanted))

    def allow(self, host: str, **more: object) -> wire.Egress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.do(routes.change(self._sandbox_id, "PATCH", {"add": [rule]}))

    def deny(self, host: str, **more: object) -> wire.Egress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.do(routes.change(self._sandbox_id, "PATCH", {"add": [rule]}))

    def remove(self, *rules: Mapping[str, object]) -> wire.Egress:
        return self._line.do(routes.change(self._sandbox_id, "PATCH", {"remove": list(rules)}))

    def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        return self._line.do(routes.explain(self._sandbox_id, url, method))

    def denials(self) -> Sequence[wire.EgressDenial]:
        return self._line.do(routes.denials(self._sandbox_id)).denials


class AccountEgress:
    """Rules that hold in all sandboxes of the account, beside each one's own."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def show(self) -> wire.AccountEgress:
        return self._line.do(routes.show_account())

    def replace(
        self, rules: Sequence[Mapping[str, object]], *, version: int | None = None
    ) -> wire.AccountEgress:
        """All of them anew; felt at once."""
        wanted: dict[str, object] = {"rules": list(rules), "version": version}
        return self._line.do(routes.change_account("PUT", wanted))

    def allow(self, host: str, **more: object) -> wire.AccountEgress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.do(routes.change_account("PATCH", {"add": [rule]}))

    def deny(self, host: str, **more: object) -> wire.AccountEgress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.do(routes.change_account("PATCH", {"add": [rule]}))

    def remove(self, *rules: Mapping[str, object]) -> wire.AccountEgress:
        return self._line.do(routes.change_account("PATCH", {"remove": list(rules)}))

    def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        """What these rules alone say."""
        return self._line.do(routes.explain_account(url, method))

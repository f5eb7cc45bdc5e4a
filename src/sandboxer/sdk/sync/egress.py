# Written by scripts/generate-sync from sdk/aio/egress.py. Do not edit.
"""`sandbox.egress`, and `client.egress` for all of the account: what may be reached outside, blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.calls import egress as calls
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import egress as wire


class Egress:
    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def show(self) -> wire.Egress:
        return self._line.send(calls.get_egress(self._sandbox_id))

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
        call = calls.replace_egress(
            self._sandbox_id, default=default, rules=rules, secrets=secrets, limits=limits, version=version
        )
        return self._line.send(call)

    def allow(self, host: str, **more: object) -> wire.Egress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.send(calls.change_egress(self._sandbox_id, add=[rule]))

    def deny(self, host: str, **more: object) -> wire.Egress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.send(calls.change_egress(self._sandbox_id, add=[rule]))

    def remove(self, *rules: Mapping[str, object]) -> wire.Egress:
        return self._line.send(calls.change_egress(self._sandbox_id, remove=rules))

    def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        return self._line.send(calls.explain_egress(self._sandbox_id, url=url, method=method))

    def denials(self) -> Sequence[wire.EgressDenial]:
        return self._line.send(calls.list_egress_denials(self._sandbox_id)).denials


class AccountEgress:
    """Rules that hold in all sandboxes of the account, beside each one's own."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def show(self) -> wire.AccountEgress:
        return self._line.send(calls.get_account_egress())

    def replace(
        self, rules: Sequence[Mapping[str, object]], *, version: int | None = None
    ) -> wire.AccountEgress:
        """All of them anew; felt at once."""
        return self._line.send(calls.replace_account_egress(rules=rules, version=version))

    def allow(self, host: str, **more: object) -> wire.AccountEgress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.send(calls.change_account_egress(add=[rule]))

    def deny(self, host: str, **more: object) -> wire.AccountEgress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.send(calls.change_account_egress(add=[rule]))

    def remove(self, *rules: Mapping[str, object]) -> wire.AccountEgress:
        return self._line.send(calls.change_account_egress(remove=rules))

    def explain(self, url: str, *, method: str = "GET") -> wire.EgressExplained:
        """What these rules alone say."""
        return self._line.send(calls.explain_account_egress(url=url, method=method))

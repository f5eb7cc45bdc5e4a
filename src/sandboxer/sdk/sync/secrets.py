"""`client.secrets` and `sandbox.secrets`, blocking: values go in and never come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.routes import secrets as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import secrets as wire


class Secrets:
    """Those of the account."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def set(self, name: str, value: str) -> wire.Secret:
        return self._line.do(routes.put(name, value))

    def list(self) -> Sequence[wire.Secret]:
        return (self._line.do(routes.listed())).secrets

    def remove(self, name: str) -> None:
        """Sandboxes that have it keep it until it is wiped there."""
        self._line.do(routes.remove(name))


class SandboxSecrets:
    """Those in one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def inject(
        self, *names: str, values: Mapping[str, str] | None = None, env: bool = True, files: bool = False
    ) -> Sequence[wire.InjectedSecret]:
        """`names` of the account, `values` for this sandbox alone; as variables and/or /run/secrets/NAME."""
        call = routes.inject(self._sandbox_id, names, values, env=env, files=files)
        return (self._line.do(call)).secrets

    def list(self) -> Sequence[wire.InjectedSecret]:
        return (self._line.do(routes.injected(self._sandbox_id))).secrets

    def wipe(self, name: str | None = None) -> wire.WipedSecrets:
        """All, or the one."""
        return self._line.do(routes.wipe(self._sandbox_id, name))

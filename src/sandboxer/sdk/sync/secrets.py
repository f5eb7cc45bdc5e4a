# Written by scripts/generate-sync from sdk/aio/secrets.py. Do not edit.
"""`client.secrets` and `sandbox.secrets`, blocking: values go in and never come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.calls import secrets as calls
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import secrets as wire


class Secrets:
    """Those of the account."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def set(self, name: str, value: str) -> wire.Secret:
        return self._line.send(calls.put_secret(name, value=value))

    def get(self, name: str) -> wire.Secret:
        return self._line.send(calls.get_secret(name))

    def list(self) -> Sequence[wire.Secret]:
        return self._line.send(calls.list_secrets()).secrets

    def remove(self, name: str) -> None:
        """Sandboxes that have it keep it until it is wiped there."""
        self._line.send(calls.remove_secret(name))


class SandboxSecrets:
    """Those in one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def inject(
        self, *names: str, values: Mapping[str, str] | None = None, env: bool = True, files: bool = False
    ) -> Sequence[wire.InjectedSecret]:
        """`names` of the account, `values` for this sandbox alone; as variables and/or /run/secrets/NAME."""
        call = calls.inject_secrets(self._sandbox_id, names=names, values=values, env=env, files=files)
        return self._line.send(call).secrets

    def list(self) -> Sequence[wire.InjectedSecret]:
        return self._line.send(calls.list_injected_secrets(self._sandbox_id)).secrets

    def wipe(self, name: str | None = None) -> wire.WipedSecrets:
        """All, or the one."""
        if name is None:
            return self._line.send(calls.wipe_secrets(self._sandbox_id))
        return self._line.send(calls.wipe_secret(self._sandbox_id, name))

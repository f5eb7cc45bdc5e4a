# Written by scripts/generate-sync from sdk/aio/previews.py. Do not edit.
"""`sandbox.previews`: addresses that open a port inside, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.calls import previews as calls
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import previews as wire


class Previews:
    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def create(
        self,
        port: int,
        *,
        ttl: str | None = None,
        public: bool | None = None,
        one_time: bool | None = None,
        wakes: bool | None = None,
        hold_s: int | None = None,
    ) -> wire.NewPreview:
        """`url` opens the port in a browser; `token` goes into X-Sandboxer-Preview."""
        call = calls.create_preview(
            self._sandbox_id,
            port=port,
            ttl=ttl,
            public=public,
            one_time=one_time,
            wakes=wakes,
            hold_s=hold_s,
        )
        return self._line.send(call)

    def list(self) -> Sequence[wire.Preview]:
        return self._line.send(calls.list_previews(self._sandbox_id)).previews

    def revoke(self, preview_id: str) -> None:
        self._line.send(calls.revoke_preview(self._sandbox_id, preview_id))

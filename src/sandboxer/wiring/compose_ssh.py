"""Opens `ext.compose-ssh` on the host that the settings name."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sandboxer.backends.compose_ssh import (
    DEVIATIONS,
    ComposeSshBackend,
    ComposeSshSettings,
    StackHost,
    open_compose_ssh,
)
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.settings import Settings

__all__ = ["DEVIATIONS", "open_backend"]


def open_backend(settings: Settings) -> AbstractAsyncContextManager[ComposeSshBackend]:
    """Opens the backend. Raises InvalidRequest if no host is named."""
    if (said := settings.compose_ssh) is None:
        why = "ext.compose-ssh needs a host: SANDBOXER_COMPOSE_SSH names it, with its key (compose-ssh.md)"
        raise InvalidRequest(field="compose_ssh", why=why)
    host = StackHost(
        address=said.host,
        port=said.port,
        user=said.user,
        key_file=said.key,
        known_hosts_file=said.known_hosts,
        remote_dir=said.remote_dir,
    )
    return open_compose_ssh(
        ComposeSshSettings(
            host=host,
            images_dir=settings.images_dir,
            guest_dir=settings.guest_dir,
            image=said.image,
            ready_within_s=parse_duration(said.ready_within, field="compose_ssh").total_seconds(),
            at_most=said.at_most,
            accounts=frozenset(said.accounts),
        )
    )

"""SSH for the edges: the keys, and where the gateway listens, if it does."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandboxer.access.ssh.keys import SshKeys
from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store

# In the state folder; whoever restores a backup keeps it, or every client would see another host.
HOST_KEY_FILE = "ssh_host_ed25519_key"


@dataclass(frozen=True, slots=True)
class Gateway:
    host: str
    port: int
    # As in known_hosts, without the name.
    host_key: str
    fingerprint: str


@dataclass(slots=True)
class Ssh:
    keys: SshKeys
    # Set by the edge that listens; None while none does.
    gateway: Gateway | None = field(default=None)


async def open_ssh(sandboxes: SandboxUseCases, store: Store, clock: Clock) -> Ssh:
    keys = SshKeys(store, clock, sandboxes)
    await keys.load()
    return Ssh(keys)

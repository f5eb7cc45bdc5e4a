"""Builds the use cases of ports, secrets, SSH and egress. The edges hold these and nothing else of the
package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandboxer.access.egress.use_cases import Egress
from sandboxer.access.ports.ports import Ports
from sandboxer.access.ports.targets import NoTargets, Targets
from sandboxer.access.secrets.use_cases import Secrets
from sandboxer.access.ssh import Ssh
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    ports: Ports
    secrets: Secrets
    ssh: Ssh
    egress: Egress


@contextmanager
def open_access(
    sandboxes: SandboxUseCases,
    store: Store,
    clock: Clock,
    seal: Seal,
    *,
    secrets: Secrets,
    ssh: Ssh,
    egress: Egress,
    targets: Targets | None = None,
) -> Iterator[Access]:
    """Opens the package. `targets` knows the names that services and customers gave to ports."""
    ports = Ports(sandboxes, store, clock, seal, targets or NoTargets())
    try:
        yield Access(ports=ports, secrets=secrets, ssh=ssh, egress=egress)
    finally:
        ports.passages.close()

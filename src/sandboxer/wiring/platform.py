"""Holds every part of a running platform, for the edges. `/health` tries the parts without which a
request would fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sandboxer.access.connections import Front
from sandboxer.access.dependencies import Access
from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.accounts.limits import Limiter, LimitPolicy, Network
from sandboxer.accounts.offers import NO_OFFERS, PaymentOffers
from sandboxer.artifacts.dependencies import Artifacts
from sandboxer.backends.contract import Backend, HasParts
from sandboxer.backends.disk_probe import write_there
from sandboxer.identity.authenticate import Authenticator
from sandboxer.identity.dependencies import WalletIdentity
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.nonces import NonceRepository
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import TaskOwner, beside
from sandboxer.money.heartbeat import Timekeeper
from sandboxer.money.pricing import Pricing
from sandboxer.observe.events import Events
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.probes import Probes
from sandboxer.observe.traces import SpanSink
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.dependencies import Payments
from sandboxer.sandboxes.use_cases.admission import Admission
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.sandboxes.use_cases.purchase import Purchases
from sandboxer.settings import Settings
from sandboxer.store.claim import probe as write_a_row
from sandboxer.store.engine import Store
from sandboxer.work.dependencies import Execution, Work
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.use_cases import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Holds everything that an edge may use."""

    settings: Settings
    clock: Clock
    timekeeper: Timekeeper
    store: Store
    metrics: Metrics
    events: Events
    webhooks: Webhooks
    keys: Keys
    nonces: NonceRepository
    authenticator: Authenticator
    wallets: WalletIdentity
    key_life: KeyLife
    authorities: AuthorityRepository
    limiter: Limiter
    limits: LimitPolicy
    trusted_proxies: tuple[Network, ...]
    front: Front
    # What callers may make this host hold.
    budget: Budget
    pricing: Pricing
    backends: Mapping[str, Backend]
    sandboxes: SandboxUseCases
    admission: Admission
    purchases: Purchases
    work: Work
    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts
    payments: Payments
    probes: Probes
    # None: nobody collects them.
    spans: SpanSink | None = None
    # What a 402 says beside the prices.
    payment_offers: PaymentOffers = NO_OFFERS


def probes_of(
    settings: Settings,
    owner: TaskOwner,
    store: Store,
    nonces: NonceRepository,
    backends: Mapping[str, Backend],
) -> Probes:
    probes = Probes(owner)
    probes.add("store", partial(store.probe, write_a_row))
    # Each in a thread of its own: what hangs is a disk, and it must not take the loop with it.
    probes.add("nonces", lambda: beside(nonces.check))
    probes.add("state", lambda: beside(partial(write_there, settings.state_dir)))
    for name, backend in sorted(backends.items()):
        if isinstance(backend, HasParts):
            for part, attempt in backend.parts().items():
                probes.add(f"{name}/{part}", attempt)
    return probes

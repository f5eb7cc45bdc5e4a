"""What an edge may hold: every room of a running platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxer.access.front.connections import Front
from sandboxer.access.room import Access
from sandboxer.accounts.authority import AuthorityBook
from sandboxer.accounts.limiter import Limiter
from sandboxer.accounts.limits import LimitPolicy, Network
from sandboxer.accounts.offers import NO_OFFERS, PaymentOffers
from sandboxer.artifacts.room import Artifacts
from sandboxer.backends.contract import Backend
from sandboxer.identity.authenticate import Authenticator
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import Keys
from sandboxer.identity.nonces import NonceBook
from sandboxer.identity.wallet_identity import WalletIdentity
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.clock import Clock
from sandboxer.money.pricing import Pricing
from sandboxer.money.timekeeper import Timekeeper
from sandboxer.observe.events import Events
from sandboxer.observe.metrics import Metrics
from sandboxer.observe.probes import Probes
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.payments.room import Payments
from sandboxer.sandboxes.slots import Slots
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.work.execute.room import Execution
from sandboxer.work.room import Work
from sandboxer.work.services.use_cases import ServiceUseCases
from sandboxer.work.sessions.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Everything an edge may hold."""

    settings: Settings
    clock: Clock
    timekeeper: Timekeeper
    store: Store
    metrics: Metrics
    events: Events
    webhooks: Webhooks
    keys: Keys
    nonces: NonceBook
    authenticator: Authenticator
    wallets: WalletIdentity
    key_life: KeyLife
    authorities: AuthorityBook
    limiter: Limiter
    limits: LimitPolicy
    trusted_proxies: tuple[Network, ...]
    front: Front
    # What callers may make this host hold.
    budget: Budget
    pricing: Pricing
    backends: Mapping[str, Backend]
    sandboxes: SandboxUseCases
    slots: Slots
    work: Work
    execution: Execution
    sessions: Sessions
    services: ServiceUseCases
    access: Access
    artifacts: Artifacts
    payments: Payments
    probes: Probes
    # What a 402 says beside the prices.
    payment_offers: PaymentOffers = NO_OFFERS

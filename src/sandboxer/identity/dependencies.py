"""Opens the parts of wallet identity together: they share a clock, a table of challenges and a domain."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxer.identity.genesis.gate import GenesisGate, Terms
from sandboxer.identity.genesis.registry import LEVEL_NEEDED, Registry
from sandboxer.identity.keys import Keys
from sandboxer.identity.seal import Seal
from sandboxer.identity.second_proof import SecondProofs
from sandboxer.identity.sessions.challenges import LIFETIME, Challenges, SealedNonces
from sandboxer.identity.sessions.sessions import WalletSessions
from sandboxer.identity.sessions.tokens import load_token_keys
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletIdentity:
    challenges: Challenges
    wallets: Wallets
    sessions: WalletSessions
    siwx: Siwx
    second_proofs: SecondProofs
    # None where the operator named no registry.
    gate: GenesisGate | None


async def open_wallet_identity(
    store: Store,
    seal: Seal,
    clock: Clock,
    keys: Keys,
    *,
    url: str,
    session_secret: str | None,
    production: bool = False,
    allow_test_networks: bool = False,
    registry: Registry | None = None,
    genesis_level: int = LEVEL_NEEDED,
) -> WalletIdentity:
    """Opens wallet identity. `url` is how callers reach the platform; its host and port are the domain that
    messages are signed for.

    Raises InvalidRequest (field SESSION_AUTH_SECRET) in production without a secret.
    """
    tokens = await load_token_keys(store, seal, clock, secret=session_secret, production=production)
    domain = urlsplit(url).netloc
    challenges = Challenges(store, clock)
    nonces = SealedNonces(store, clock, key=seal.derive("siwx nonces"), lifetime=LIFETIME)
    wallets = Wallets(store, clock)
    sessions = WalletSessions(
        store,
        clock,
        tokens=tokens,
        challenges=challenges,
        wallets=wallets,
        domain=domain,
        allow_test_networks=allow_test_networks,
    )
    terms = Terms(domain=domain, is_mainnet=not allow_test_networks)
    return WalletIdentity(
        challenges=challenges,
        wallets=wallets,
        sessions=sessions,
        siwx=Siwx(sessions, challenges, clock, nonces=nonces, domain=domain, uri=url),
        second_proofs=SecondProofs(challenges, keys, wallets, clock, domain=domain),
        gate=None
        if registry is None
        else GenesisGate(registry, challenges, clock, terms, level_needed=genesis_level),
    )

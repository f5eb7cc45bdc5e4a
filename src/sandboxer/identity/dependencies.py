"""Opens the parts of identity. Wallet identity is opened together: its parts share a clock, a table of
challenges and a domain. The owner's key is made before the server answers anything: whoever can read
`owner.json` owns the platform.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from sandboxer.identity.genesis.gate import LEVEL_NEEDED, GenesisGate, Registry, Terms
from sandboxer.identity.keys import OWNER_ACCOUNT, Keys, NewKey, generate, is_public_key, is_secret_key
from sandboxer.identity.seal import Seal, replace_private_file
from sandboxer.identity.second_proof import SecondProofs
from sandboxer.identity.sessions.challenges import Challenges
from sandboxer.identity.sessions.sessions import WalletSessions
from sandboxer.identity.sessions.tokens import load_token_keys
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.siwx import Siwx
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store


@value_class
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
    challenges = Challenges(store, clock, key=seal.derive("nonces of strangers"))
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
        siwx=Siwx(sessions, challenges, clock, domain=domain, uri=url),
        second_proofs=SecondProofs(challenges, keys, wallets, clock, domain=domain),
        gate=None
        if registry is None
        else GenesisGate(registry, challenges, clock, terms, level_needed=genesis_level),
    )


async def ensure_owner(keys: Keys, path: Path, *, url: str) -> str:
    """Makes file and database agree on the owner's key; returns its public half. Safe to repeat after a
    crash.

    The file wins if it names a key the database lacks (the database is new), the database if the file is
    gone. The owner's key takes v1 signatures too, so that existing clients work on the first day.
    """
    if (owner := _read_owner(path)) is None:
        if (known := await keys.owner()) is None:
            owner = generate(OWNER_ACCOUNT, "owner", accepts_v1=True)
        else:
            owner = _owner(known.public_key, known.secret.decode())
    # Database first: a file must never promise a key that nobody knows.
    await keys.adopt_owner(owner)
    found = await keys.find(owner.public_key)
    if found is None or found.secret != owner.secret_key.encode() or not found.caller.is_owner:
        raise Broken(why=f"{path.name} names a key that the database knows otherwise; move the file away")
    content = {"public_key": owner.public_key, "secret_key": owner.secret_key, "url": url}
    text = json.dumps(content, indent=2) + "\n"
    if not path.exists() or path.read_text("utf-8") != text:
        replace_private_file(path, text)
    # Someone may have copied it about with another mode.
    path.chmod(0o600)
    return owner.public_key


def _read_owner(path: Path) -> NewKey | None:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        public_key, secret_key = content["public_key"], content["secret_key"]
        if not (is_public_key(public_key) and is_secret_key(secret_key)):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        # `from None`: the parser's message would carry parts of the file into a log.
        raise Broken(
            why=f"{path.name} is not an owner's file; move it away to have it written anew"
        ) from None
    return _owner(public_key, secret_key)


def _owner(public_key: str, secret_key: str) -> NewKey:
    return NewKey(
        public_key=public_key, secret_key=secret_key, account=OWNER_ACCOUNT, name="owner", accepts_v1=True
    )

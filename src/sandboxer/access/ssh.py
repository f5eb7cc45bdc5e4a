"""Public keys that open sandboxes: added, listed, revoked, and looked up by the gateway.

All valid keys are in memory, so that a stranger's attempt costs no database access.

`read_public_key` reads a key as `ssh-keygen` writes it; anything that is not fully understood is refused.
`Ssh` is what the edges hold: the keys, and where the gateway listens, if it does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from sqlalchemy import Column, Connection, Index, Table, Text, insert, select, update

from sandboxer.access.ports.targets import GONE
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.observe.events import record
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata, nullable, required

MAX_OF_ACCOUNT = 100
MAX_LINE = 16 * 1024
MIN_RSA_BITS = 2048
# DSA is missing because it is broken, and every current client refuses it.
ALGORITHMS = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
# Kept in the state folder and in backups; with another key, every client would see another host.
HOST_KEY_FILE = "ssh_host_ed25519_key"


@value_class
class SshKey:
    id: str
    account: str
    # The caller who added it. The key has this caller's rights, as long as the caller has them.
    created_by: str
    name: str
    # None: it opens every sandbox of the account.
    sandbox_id: str | None
    algorithm: str
    # The key as in authorized_keys, without the comment.
    public_key: str
    # SHA256:…, as ssh-keygen prints it.
    fingerprint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None = None

    def stands(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def caller(self) -> Caller:
        """Returns the caller of connections with this key: the one who added it, limited to that account's
        sandboxes.
        """
        return Caller(public_key=self.created_by, account=self.account)


ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", Text, nullable=False),
    # The caller who added it. The key has this caller's rights, as long as the caller has them.
    *required(Text, "created_by", "name"),
    # None: it opens every sandbox of the account.
    Column("sandbox_id", Text),
    Column("algorithm", Text, nullable=False),
    # The key as in authorized_keys, without the comment.
    Column("public_key", Text, nullable=False),
    # SHA256:…, as ssh-keygen prints it.
    Column("fingerprint", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    *nullable(UtcDateTime, "expires_at", "revoked_at"),
    Index(None, "account", "created_at"),
    Index(None, "fingerprint"),
)
_t = ssh_keys.c


@brief_value_class
class PublicKey:
    algorithm: str
    # Algorithm and base64, without the comment.
    text: str
    fingerprint: str
    comment: str


@brief_value_class
class Gateway:
    host: str
    port: int
    # As in known_hosts, without the name.
    host_key: str
    fingerprint: str


@dataclass(slots=True)
class Ssh:
    keys: SshKeys
    # Set by the edge while it listens; None otherwise.
    gateway: Gateway | None = field(default=None)


class SshKeys:
    def __init__(self, store: Store, clock: Clock, sandboxes: SandboxDependencies) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._by_id: dict[str, SshKey] = {}
        self._by_fingerprint: dict[str, list[SshKey]] = {}

    async def load(self) -> None:
        """Loads all keys once, at the start."""
        query = select(ssh_keys).where(_t.revoked_at.is_(None))
        for row in await self._store.read(lambda conn: list(conn.execute(query))):
            self._remember(SshKey(**row._mapping))

    async def add(
        self,
        caller: Caller,
        *,
        public_key: str,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: timedelta | None = None,
    ) -> SshKey:
        """Adds a key for one sandbox, or for all that the account has and will have. Raises InvalidRequest,
        NotFound.
        """
        read = read_public_key(public_key)
        account = caller.account
        if sandbox_id is not None:
            account = (await self._sandboxes.visible(sandbox_id, caller)).account
        now = self._clock.now()
        made = SshKey(
            id=new_id("ssk"),
            account=account,
            created_by=caller.public_key,
            name=name or read.comment or read.algorithm,
            sandbox_id=sandbox_id,
            algorithm=read.algorithm,
            public_key=read.text,
            fingerprint=read.fingerprint,
            created_at=now,
            expires_at=None if ttl is None else now + ttl,
        )
        self._refuse(made, now)

        def write(conn: Connection) -> None:
            conn.execute(insert(ssh_keys), asdict(made))
            _tell(conn, made, "ssh_key.added", caller.public_key, now)

        self._remember(made)
        try:
            await self._store.write(write)
        except BaseException:
            self._forget(made)
            raise
        return made

    async def list(self, caller: Caller) -> Sequence[SshKey]:
        """Returns the valid keys, newest first."""
        now = self._clock.now()
        mine = [key for key in self._by_id.values() if key.account == caller.account and key.stands(now)]
        return sorted(mine, key=lambda key: (key.created_at, key.id), reverse=True)

    async def revoke(self, key_id: str, caller: Caller) -> None:
        """Revokes a key; its open connections end within a second. Raises NotFound."""
        if (known := self._by_id.get(key_id)) is None or known.account != caller.account:
            raise NotFound(what="SSH key", id=key_id)
        now = self._clock.now()

        def write(conn: Connection) -> None:
            conn.execute(update(ssh_keys).where(_t.id == key_id).values(revoked_at=now))
            _tell(conn, known, "ssh_key.revoked", caller.public_key, now)

        await self._store.write(write)
        self._forget(known)

    def opening(self, sandbox_id: str, fingerprint: str) -> SshKey | None:
        """Returns the key that opens this sandbox. A sandbox that does not exist and one of somebody else
        look the same.
        """
        now = self._clock.now()
        for key in self._by_fingerprint.get(fingerprint, ()):
            if key.stands(now) and key.sandbox_id in (None, sandbox_id):
                sandbox = self._sandboxes.repository.peek(sandbox_id)
                if sandbox is not None and sandbox.account == key.account and sandbox.state not in GONE:
                    return key
        return None

    def why_shut(self, key: SshKey, sandbox_id: str) -> str | None:
        """Returns why a key no longer opens what it opened, or None if it still does."""
        if (known := self._by_id.get(key.id)) is None:
            return "the SSH key was revoked"
        if not known.stands(self._clock.now()):
            return "the SSH key's time is over"
        if self.opening(sandbox_id, known.fingerprint) is None:
            return f"{sandbox_id} is gone"
        return None

    async def tell_of(self, key: SshKey, sandbox_id: str, address: str) -> None:
        """Records that somebody logged in."""
        now = self._clock.now()
        data = {"ssh_key": key.id, "fingerprint": key.fingerprint, "address": address}

        def write(conn: Connection) -> None:
            record(
                conn,
                subject=sandbox_id,
                kind="ssh.connected",
                actor=key.created_by,
                reason="ssh",
                at=now,
                data=data,
            )

        await self._store.write(write)

    def _refuse(self, made: SshKey, now: datetime) -> None:
        mine = [key for key in self._by_id.values() if key.account == made.account and key.stands(now)]
        if any((key.fingerprint, key.sandbox_id) == (made.fingerprint, made.sandbox_id) for key in mine):
            raise Conflict(
                why="this key is registered already",
                hint="It opens what it opened; to change its terms revoke it first (GET /v1/ssh-keys).",
            )
        if len(mine) >= MAX_OF_ACCOUNT:
            hint = "Revoke one first: GET /v1/ssh-keys, then DELETE /v1/ssh-keys/{key_id}."
            raise Conflict(why=f"an account has at most {MAX_OF_ACCOUNT} SSH keys", hint=hint)

    def _remember(self, key: SshKey) -> None:
        self._by_id[key.id] = key
        self._by_fingerprint.setdefault(key.fingerprint, []).append(key)

    def _forget(self, key: SshKey) -> None:
        self._by_id.pop(key.id, None)
        same = self._by_fingerprint.get(key.fingerprint, [])
        if left := [one for one in same if one.id != key.id]:
            self._by_fingerprint[key.fingerprint] = left
        else:
            self._by_fingerprint.pop(key.fingerprint, None)


def _tell(conn: Connection, key: SshKey, kind: str, actor: str, now: datetime) -> None:
    data = {"ssh_key": key.id, "name": key.name, "fingerprint": key.fingerprint}
    subject = key.sandbox_id or key.account
    record(conn, subject=subject, kind=kind, actor=actor, reason="asked", at=now, data=data)


def read_public_key(line: str) -> PublicKey:
    """Reads a public key. Raises InvalidRequest; a private key is recognised and never repeated."""
    line = line.strip()
    if "PRIVATE KEY" in line:
        raise _wrong("this is a private key: keep it, and give the .pub beside it")
    if len(line) > MAX_LINE or "\n" in line or "\r" in line or "\0" in line:
        raise _wrong("one line of an authorized_keys file is wanted, at most 16 KiB")
    algorithm, _, rest = line.partition(" ")
    encoded, _, comment = rest.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise _wrong(f"it has to begin with one of {', '.join(sorted(ALGORITHMS))}; options are not taken")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("what follows the algorithm is not base64") from None
    _check_blob(algorithm, encoded, blob)
    return PublicKey(algorithm, f"{algorithm} {encoded}", fingerprint_of(blob), comment.strip()[:200])


def fingerprint_of(blob: bytes) -> str:
    """Returns the fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _check_blob(algorithm: str, encoded: str, blob: bytes) -> None:
    name = algorithm.encode()
    if blob[: 4 + len(name)] != len(name).to_bytes(4, "big") + name:
        raise _wrong("the key inside is of another algorithm than the line says")
    try:
        key = load_ssh_public_key(f"{algorithm} {encoded}".encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _wrong("it is no well-formed key") from None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise _wrong(f"an RSA key needs {MIN_RSA_BITS} bits, this one has {key.key_size}")


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="public_key", why=why)


async def open_ssh(sandboxes: SandboxDependencies, store: Store, clock: Clock) -> Ssh:
    keys = SshKeys(store, clock, sandboxes)
    await keys.load()
    return Ssh(keys)

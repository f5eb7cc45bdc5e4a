"""Seals secrets at rest with AES-256-GCM under `master.key`, so that a copy of the database alone gives
nothing away.

The master key belongs to the database it has sealed: another one, or a new one, is refused at the start.
Files that hold secrets are of mode 0600 from their first instant, whole or absent after any crash.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Connection, select, update

from sandboxer.kernel.errors import Broken, Conflict
from sandboxer.store.claim import server_claim
from sandboxer.store.engine import Store


def create_private_file(path: Path, text: str) -> bool:
    """Writes a new file. Returns False, and does nothing, if there is one already."""
    draft = _draft(path, text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync_folder(path.parent)
    return True


def replace_private_file(path: Path, text: str) -> None:
    """Writes the file. A reader sees the old content or the new, never a part."""
    draft = _draft(path, text)
    os.replace(draft, path)
    _sync_folder(path.parent)


def _draft(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # O_EXCL and the mode in one call: there is no moment in which others could open it.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_VERSION = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class Seal:
    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise Broken(why=f"a master key has {_KEY_BYTES} bytes, this one {len(key)}")
        self._cipher = AESGCM(key)
        self._key = key

    def derive(self, info: str) -> bytes:
        """Derives a key for another purpose (HKDF-SHA256), which says nothing about this one."""
        return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=info.encode()).derive(self._key)

    def close(self, secret: bytes, *, context: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, context.encode())

    def open(self, sealed: bytes, *, context: str) -> bytes:
        if sealed[:1] != _VERSION:
            raise Broken(why=f"the secret of {context} is sealed in a way this program does not know")
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, context.encode())
        except InvalidTag:
            raise Broken(
                why=f"the secret of {context} does not open: master.key is not the one that sealed this"
                " database, or the row was changed"
            ) from None


def open_seal(path: Path) -> Seal:
    """Opens the seal of a key file, which is made (0600, random) if there is none."""
    try:
        return Seal(open_key_file(path))
    except ValueError:
        raise Broken(why=f"{path.name} does not hold {_KEY_BYTES} bytes in hex") from None


_REMEDY = "Bring back the master.key that was backed up with it (`sandboxer backup` puts it into the file)."


async def open_master_key(store: Store, path: Path) -> Seal:
    """Opens the seal of this database's key. It is made only if both the key file and the database are
    new.
    """
    if (known := await store.read(_known)) is not None and not path.exists():
        raise Conflict(why=f"{path} is missing, and this database was sealed with it", hint=_REMEDY)
    seal = open_seal(path)
    mark = seal.derive("sandboxer master key check v1").hex()
    if known is None:
        await store.write(lambda conn: conn.execute(update(server_claim).values(key_check=mark)))
    elif known != mark:
        raise Conflict(why=f"{path} is not the key that this database was sealed with", hint=_REMEDY)
    return seal


def _known(conn: Connection) -> str | None:
    found: str | None = conn.execute(select(server_claim.c.key_check)).scalar()
    return found


def open_key_file(path: Path) -> bytes:
    """Reads a key in hex, or makes it, random and for its owner only. Raises ValueError if it is no hex."""
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        text = secrets.token_bytes(_KEY_BYTES).hex() + "\n"
        if not create_private_file(path, text):
            text = path.read_text("ascii")
    return bytes.fromhex(text.strip())

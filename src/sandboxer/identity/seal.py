"""Secrets at rest: AES-256-GCM under `master.key`, so that a copy of the database alone gives nothing away.

A sealed secret is bound to what it belongs to (`context`): moved to another row, it does not open.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sandboxer.identity.private_files import create_private_file
from sandboxer.kernel.errors import Broken

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
        """A key of its own for another purpose (HKDF-SHA256); it says nothing about this one."""
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
    """The seal of the key file, which is made (0600, random) where there is none."""
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        text = secrets.token_bytes(_KEY_BYTES).hex() + "\n"
        if not create_private_file(path, text):
            text = path.read_text("ascii")
    try:
        return Seal(bytes.fromhex(text.strip()))
    except ValueError:
        raise Broken(why=f"{path.name} does not hold {_KEY_BYTES} bytes in hex") from None

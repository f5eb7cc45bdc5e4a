"""A secret in a file, under a password: scrypt, AES-256-GCM, mode 0600, whole or absent after any crash."""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sandboxer.identity.private_files import create_private_file, replace_private_file
from sandboxer.kernel.errors import Broken, Conflict, Forbidden, NotFound

_VERSION = 1
# 64 MB and a fifth of a second for each guess.
_N, _R, _P = 2**16, 8, 1
_MEMORY = 192 * 2**20
# What a file may ask of us before its password is known to be right.
_MOST_N = 2**20


class Vault:
    """An open vault. The derived key is kept, not the password, so saving again is quick."""

    def __init__(self, path: Path, header: dict[str, object], key: bytes, content: bytes) -> None:
        self.path = path
        self.content = content
        self._header = header
        self._cipher = AESGCM(key)

    def reload(self) -> None:
        """What is on disk now: another process may have written since."""
        header, sealed = _parts(self.path)
        if header != self._header:
            raise Conflict(why=f"{self.path} was put under another password meanwhile; open it again")
        self.content = _opened(self._cipher, header, sealed)

    def replace(self, content: bytes) -> None:
        replace_private_file(self.path, _sealed(self._header, self._cipher, content))
        self.content = content


def create_vault(path: Path, password: str, content: bytes) -> Vault:
    header: dict[str, object] = {
        "version": _VERSION,
        "kdf": "scrypt",
        "n": _N,
        "r": _R,
        "p": _P,
        "salt": secrets.token_hex(16),
    }
    key = _derived(header, password, path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not create_private_file(path, _sealed(header, AESGCM(key), content)):
        raise Conflict(why=f"there is a wallet at {path} already")
    return Vault(path, header, key, content)


def open_vault(path: Path, password: str) -> Vault:
    header, sealed = _parts(path)
    key = _derived(header, password, path)
    return Vault(path, header, key, _opened(AESGCM(key), header, sealed))


def _parts(path: Path) -> tuple[dict[str, object], bytes]:
    try:
        parts = json.loads(path.read_text("ascii"))
        header, sealed = parts["header"], bytes.fromhex(parts["sealed"])
    except FileNotFoundError:
        raise NotFound(what="wallet", id=str(path)) from None
    except (ValueError, KeyError, TypeError):
        raise Broken(why=f"{path.name} is not a wallet file") from None
    if not isinstance(header, dict):
        raise Broken(why=f"{path.name} is not a wallet file")
    return header, sealed


def _opened(cipher: AESGCM, header: dict[str, object], sealed: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:12], sealed[12:], _bound(header))
    except (InvalidTag, ValueError):
        raise Forbidden(why="the password is wrong, or the wallet's file was changed") from None


def _sealed(header: dict[str, object], cipher: AESGCM, content: bytes) -> str:
    nonce = secrets.token_bytes(12)
    sealed = nonce + cipher.encrypt(nonce, content, _bound(header))
    return json.dumps({"header": header, "sealed": sealed.hex()}) + "\n"


def _bound(header: dict[str, object]) -> bytes:
    return json.dumps(header, sort_keys=True).encode()


def _derived(header: dict[str, object], password: str, path: Path) -> bytes:
    n, r, p, salt = (header.get(name) for name in ("n", "r", "p", "salt"))
    if header.get("version") != _VERSION or header.get("kdf") != "scrypt" or not isinstance(salt, str):
        raise Broken(why=f"{path.name} is sealed in a way this program does not know")
    if type(n) is not int or not _N <= n <= _MOST_N or (r, p) != (_R, _P):
        raise Broken(why=f"{path.name} asks for more than a wallet file needs")
    memory = _MEMORY * max(1, n // _N)
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=n, r=_R, p=_P, dklen=32, maxmem=memory)

"""Reading a public key as `ssh-keygen` writes it. Pure; what we do not fully understand is refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from sandboxer.kernel.errors import InvalidRequest

MAX_LINE = 16 * 1024
MIN_RSA_BITS = 2048
# No DSA: broken, and refused by every current client.
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


@dataclass(frozen=True, slots=True)
class PublicKey:
    algorithm: str
    # Algorithm and base64, without the comment.
    text: str
    fingerprint: str
    comment: str


def read_public_key(line: str) -> PublicKey:
    """Raises InvalidRequest; a private key is named as such, and never repeated."""
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
    """As ssh-keygen -l prints it."""
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

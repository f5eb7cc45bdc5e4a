"""The public authorities, read once for each test process: every HTTP client of every platform read them all
anew, which took longer than most tests. So did keys that are derived from passwords.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from httpx._transports import default as transports

_real = transports.create_ssl_context
_real_scrypt = hashlib.scrypt
_known: dict[tuple[Any, ...], ssl.SSLContext] = {}


@contextmanager
def shared_trust() -> Iterator[None]:
    """Clients that ask for nothing special share what they trust; nobody changes it after."""
    transports.create_ssl_context = _create
    try:
        yield
    finally:
        transports.create_ssl_context = _real


@contextmanager
def shared_derivations() -> Iterator[None]:
    """The same password and salt give the same key, and it is derived once: that takes a sixth of a second of
    the processor, on purpose."""
    hashlib.scrypt = cache(_real_scrypt)
    try:
        yield
    finally:
        hashlib.scrypt = _real_scrypt


def _create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is not True or cert is not None:
        return _real(verify=verify, cert=cert, trust_env=trust_env)
    reported = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")) if trust_env else ()
    if reported not in _known:
        _known[reported] = _real(verify=verify, cert=cert, trust_env=trust_env)
    return _known[reported]

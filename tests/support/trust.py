"""The public authorities, read once for each test process: every HTTP client of every platform read them all
anew, which took longer than most tests.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from httpx._transports import default as transports

_real = transports.create_ssl_context
_known: dict[tuple[Any, ...], ssl.SSLContext] = {}


@contextmanager
def shared_trust() -> Iterator[None]:
    """Clients that ask for nothing special share what they trust; nobody changes it after."""
    transports.create_ssl_context = _create
    try:
        yield
    finally:
        transports.create_ssl_context = _real


def _create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is not True or cert is not None:
        return _real(verify=verify, cert=cert, trust_env=trust_env)
    reported = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")) if trust_env else ()
    if reported not in _known:
        _known[reported] = _real(verify=verify, cert=cert, trust_env=trust_env)
    return _known[reported]

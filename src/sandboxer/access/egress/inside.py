"""What a sandbox with a way out finds inside: whom to trust, and what tools need that read no variables.

`zero` has nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path

import certifi

from sandboxer.backends.guest import Files
from sandboxer.kernel.errors import SandboxerError

log = logging.getLogger(__name__)
# Inside, on 127.0.0.1 and ::1.
PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
# The public authorities and the sandbox's own.
BUNDLE = "/etc/sandboxer/egress/ca-bundle.pem"
_NEAR = "localhost,127.0.0.1,::1"
ENVIRONMENT: Mapping[str, str] = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _NEAR),
    **dict.fromkeys(
        (
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
            "PIP_CERT",
        ),
        BUNDLE,
    ),
    # Node reads the proxy's variables only when told to.
    "NODE_USE_ENV_PROXY": "1",
}
_AUTHORITY = "/usr/local/share/ca-certificates/sandboxer-egress.crt"
_APT = "/etc/apt/apt.conf.d/95sandboxer-egress"


def contents(authority_pem: bytes) -> Mapping[str, bytes]:
    return {
        BUNDLE: _public_authorities() + b"\n" + authority_pem,
        # For `update-ca-certificates`, where a program looks at the system's store only.
        _AUTHORITY: authority_pem,
        _APT: f'Acquire::http::Proxy "{PROXY_URL}";\nAcquire::https::Proxy "{PROXY_URL}";\n'.encode(),
    }


async def place_files(files: Files, authority_pem: bytes, sandbox_id: str) -> None:
    """A full disk must not keep a sandbox from starting: then its opened TLS is what fails, and says why."""
    try:
        for path, content in contents(authority_pem).items():
            await files.write(path, _once(content), mode=0o644)
    except SandboxerError as error:
        log.warning("sandbox %s did not take its egress files: %s", sandbox_id, error)


@cache
def _public_authorities() -> bytes:
    return Path(certifi.where()).read_bytes()


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content

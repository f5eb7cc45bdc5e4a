"""A certificate authority for one sandbox: it signs the sandbox's opened TLS, and only this sandbox trusts
it.

`place_files` puts into a sandbox with egress which authority to trust, and settings for tools that read no
variables. A sandbox of trust level `zero` has none of it.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, cached_property
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandboxer.backends.guest import WAY_OUT_PORT, Files, FirstFile, whole
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import together
from sandboxer.kernel.values import brief_value_class

_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=90)
_BACK = timedelta(days=1)
_REMEMBERED = 256
_PEM = serialization.Encoding.PEM
log = logging.getLogger(__name__)
PROXY_URL = f"http://127.0.0.1:{WAY_OUT_PORT}"
# The file with the public authorities and the sandbox's own.
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
    # Who installs packages in a sandbox is root there, and needs no warning.
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # Node reads the proxy variables only if this is set.
    "NODE_USE_ENV_PROXY": "1",
}
# Where Debian and its kin keep the authorities of a machine.
_SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
_AUTHORITY = "/usr/local/share/ca-certificates/sandboxer-egress.crt"
_APT = "/etc/apt/apt.conf.d/95sandboxer-egress"


@brief_value_class
class KeptAuthority:
    certificate_pem: bytes
    # Must not be stored unsealed.
    key_pem: bytes


def make_authority(sandbox_id: str, now: datetime) -> KeptAuthority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"egress of {sandbox_id}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeptAuthority(certificate.public_bytes(_PEM), _key_pem(key))


class Authority:
    def __init__(self, kept: KeptAuthority) -> None:
        self.certificate_pem = kept.certificate_pem
        self._key_pem = kept.key_pem
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    # Read with the first connection that is opened, which few sandboxes have.
    @cached_property
    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate_pem)

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self._key_pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def context_for(self, host: str, now: datetime) -> ssl.SSLContext:
        """Returns the TLS context that is presented to a program inside that connects to this host."""
        if (context := self._contexts.get(host)) is None:
            context = self._contexts[host] = _context(self._leaf(host, now))
            if len(self._contexts) > _REMEMBERED:
                self._contexts.popitem(last=False)
        return context

    def _leaf(self, host: str, now: datetime) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACK)
            .not_valid_after(now + _LEAF_LIFE)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(_PEM) + self.certificate_pem


def _context(chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # `ssl` reads chains only from files; this one is in memory and readable only by this process.
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        file.write(chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def first_files(authority_pem: bytes) -> Sequence[FirstFile]:
    """Returns the files as the disk of a new sandbox can begin with them."""
    pem = authority_pem.decode("ascii")
    return (
        FirstFile(path=BUNDLE, source=_public_authorities(), text=f"\n{pem}"),
        # For `update-ca-certificates`, for programs that look only at the system's store.
        FirstFile(path=_AUTHORITY, text=pem),
        FirstFile(
            path=_APT,
            text=f'Acquire::http::Proxy "{PROXY_URL}";\nAcquire::https::Proxy "{PROXY_URL}";\n',
        ),
    )


async def place_files(files: Files, authority_pem: bytes, sandbox_id: str) -> None:
    """Writes the files. A full disk must not keep a sandbox from starting: its opened TLS then fails and says
    why.
    """
    try:
        wanted = first_files(authority_pem)
        await together(*(files.write(one.path, whole(_content(one)), mode=0o644) for one in wanted))
    except SandboxerError as error:
        log.warning("sandbox %s did not take its egress files: %s", sandbox_id, error)


def _content(file: FirstFile) -> bytes:
    return (_read(file.source) if file.source else b"") + file.text.encode()


@cache
def _public_authorities() -> str:
    """Returns where the authorities are that this machine trusts: a mirror nearby may be known to them
    alone.
    """
    system = ssl.get_default_verify_paths().cafile or _SYSTEM
    try:
        found = Path(system).read_bytes()
    except OSError:
        found = b""
    return system if b"BEGIN CERTIFICATE" in found else certifi.where()


@cache
def _read(path: str) -> bytes:
    return Path(path).read_bytes()

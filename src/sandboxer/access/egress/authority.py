"""A certificate authority for one sandbox: its opened TLS is signed by it, and only it trusts it."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=90)
_BACK = timedelta(days=1)
_REMEMBERED = 256
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class KeptAuthority:
    certificate_pem: bytes
    # Not to be kept unsealed.
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
        self._certificate = x509.load_pem_x509_certificate(kept.certificate_pem)
        key = serialization.load_pem_private_key(kept.key_pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def context_for(self, host: str, now: datetime) -> ssl.SSLContext:
        """What we show a program inside that wants to speak to this host."""
        context = self._contexts.get(host)
        if context is None:
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
    # `ssl` reads chains from files only; this one is in memory and nobody else's.
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

"""Keys of an engine that is reached by TLS: an authority, the engine's own, a client's, and a stranger's."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_tls_keys(home: Path, address: str) -> None:
    """Makes `tls` and `stranger` in a folder, each as a client has it, and `engine.pem` with its key."""
    for name in ("tls", "stranger"):
        (home / name).mkdir()
    ca, key = home / "tls/ca.pem", home / "ca-key.pem"
    about = ("-subj", "/CN=authority of a test", "-days", "2")
    _openssl("req", "-x509", *_NEW, "-keyout", str(key), "-out", str(ca), *about)
    _signed(home / "engine.pem", home / "engine-key.pem", ca, key, f"subjectAltName=IP:{address}")
    _signed(home / "tls/cert.pem", home / "tls/key.pem", ca, key, "extendedKeyUsage=clientAuth")
    stranger = home / "stranger"
    about = ("-subj", "/CN=nobody", "-days", "2")
    _openssl(
        "req",
        "-x509",
        *_NEW,
        "-keyout",
        str(stranger / "key.pem"),
        "-out",
        str(stranger / "cert.pem"),
        *about,
    )
    (stranger / "ca.pem").write_bytes(ca.read_bytes())


def _signed(certificate: Path, key: Path, ca: Path, ca_key: Path, extension: str) -> None:
    request, said = certificate.with_suffix(".csr"), certificate.with_suffix(".ext")
    said.write_text(extension + "\n")
    _openssl("req", *_NEW, "-keyout", str(key), "-out", str(request), "-subj", "/CN=test")
    signing = ("-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial", "-days", "2")
    _openssl("x509", "-req", "-in", str(request), "-out", str(certificate), *signing, "-extfile", str(said))


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)

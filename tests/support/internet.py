"""An internet on this machine, for suites that visit hosts far away: `python -m tests.support.internet up …`
is `sandboxer up`, but that the hosts of a map are dialled at ports of the loopback.

The map is here and not in the product: no setting of a platform leads a sandbox to this machine. Rules are
asked about the hosts as ever; what is left out is looking a name up and judging the address behind it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Mapping, Sequence
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandboxer.access.egress import outlets
from sandboxer.access.egress.proxy.dialer import Dialer
from sandboxer.access.egress.proxy.wire import Wire
from tests.support.archives import make_tree

# Hosts and the ports of this machine where they are found at 443, as JSON; `.name` is every name below it.
_MAP = "INTERNET_OF_TESTS"
NOTHING: Mapping[str, int] = MappingProxyType({})
_REGISTRY = "registry-1.docker.io"
_IMAGE = "/v2/library/ubuntu"
_SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
# By host: the status with which it greets everybody, and where it then leads.
_GREETINGS = {
    "1.1.1.1": (301, "https://one.one.one.one/"),
    "8.8.8.8": (302, "https://dns.google/"),
    "connectivitycheck.gstatic.com": (204, None),
}


class Internet(ThreadingHTTPServer):
    """A server with TLS that is all of these hosts, and a registry with an image `ubuntu:22.04` of a few
    files. Its certificate is trusted by a platform that has the `settings`, and by its sandboxes."""

    def __init__(self, folder: Path, more: Mapping[str, int] = NOTHING) -> None:
        """`more` are other hosts, and their ports on this machine."""
        super().__init__(("127.0.0.1", 0), _Host)
        folder.mkdir(parents=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(folder))
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._trusted = folder / "trusted.pem"
        self._trusted.write_bytes(Path(_SYSTEM).read_bytes() + (folder / "certificate.pem").read_bytes())
        hosts = {**dict.fromkeys((*_GREETINGS, _REGISTRY), self.server_port), **more}
        self.settings = {_MAP: json.dumps(hosts), "SSL_CERT_FILE": str(self._trusted)}
        # What the registry has, by path: its media type and its bytes.
        self.image = _image(folder / "ubuntu")
        # Of every request, by which host it was asked for.
        self.heads: list[tuple[str, Message]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def trust(self, authority: Path) -> None:
        """Adds an authority. The platform reads them when it makes its first sandbox."""
        with self._trusted.open("ab") as file:
            file.write(authority.read_bytes())

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Host(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Internet

    def do_GET(self) -> None:
        host = self.headers.get("host", "").partition(":")[0]
        self.server.heads.append((host, self.headers))
        if host == _REGISTRY:
            kind, content = self.server.image.get(self.path, ("", b""))
            about = {"content-type": kind or "text/plain", "docker-content-digest": _digest(content)}
            self._say(200 if kind else 404, about, content)
        else:
            status, onwards = _GREETINGS.get(host, (404, None))
            self._say(status, {} if onwards is None else {"location": onwards}, b"")

    do_HEAD = do_GET

    def _say(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _certificate(folder: Path) -> tuple[Path, Path]:
    paths = folder / "certificate.pem", folder / "key.pem"
    names = [f"IP:{name}" if name[0].isdigit() else f"DNS:{name}" for name in (*_GREETINGS, _REGISTRY)]
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run += ["-keyout", str(paths[1]), "-out", str(paths[0]), "-days", "2", "-subj", "/CN=internet of tests"]
    run += ["-addext", f"subjectAltName={','.join(names)}"]
    subprocess.run(run, check=True, capture_output=True)
    return paths


def _image(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Returns what a registry answers about an image of a few files, by path."""
    make_tree(folder)
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        tar.add(folder, arcname=".")
    layer, form = held.getvalue(), "application/vnd.oci.image"
    about: dict[str, object] = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "history": [{"created_by": "tests"}],
    }
    blobs = {"config.v1+json": json.dumps(about).encode(), "layer.v1.tar": layer}
    parts = [
        {"mediaType": f"{form}.{kind}", "size": len(blob), "digest": _digest(blob)}
        for kind, blob in blobs.items()
    ]
    kind = f"{form}.manifest.v1+json"
    about = {"schemaVersion": 2, "mediaType": kind, "config": parts[0], "layers": parts[1:]}
    manifest = json.dumps(about).encode()
    found = {"/v2/": ("application/json", b"{}")}
    tags = {"name": "library/ubuntu", "tags": ["22.04"]}
    found[f"{_IMAGE}/tags/list"] = ("application/json", json.dumps(tags).encode())
    for name in ("22.04", _digest(manifest)):
        found[f"{_IMAGE}/manifests/{name}"] = (kind, manifest)
    for part, blob in zip(parts, blobs.values(), strict=True):
        found[f"{_IMAGE}/blobs/{part['digest']}"] = (str(part["mediaType"]), blob)
    return found


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class _MappedDialer(Dialer):
    async def dial(self, host: str, port: int, *given: Any, **more: Any) -> Wire:
        near = _near(host) if port == 443 else None
        return await super().dial(host, port if near is None else near, *given, **more)

    async def _judged(self, host: str, port: int, owner: str) -> Sequence[str]:
        return await super()._judged(host, port, owner) if _near(host) is None else ["127.0.0.1"]


def _near(host: str) -> int | None:
    hosts: Mapping[str, int] = json.loads(os.environ[_MAP])
    below = (port for name, port in hosts.items() if name[0] == "." and host.endswith(name))
    return hosts.get(host) or next(below, None)


if __name__ == "__main__":
    from sandboxer.edges.cli.main import main

    outlets.Dialer = _MappedDialer  # type: ignore[misc]
    main()

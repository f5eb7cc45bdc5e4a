"""While an image is built, its packages' scripts reach the mirrors and nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sandboxer.artifacts.images.bootstrap import bootstrap, proxies_of
from sandboxer.artifacts.images.build import _host_sources, _os_release, hold_images, load_recipe
from sandboxer.artifacts.images.build_network import PORT, mirror_places, open_build_network
from sandboxer.artifacts.images.recipe import Mirrors, Source, choose_mirrors
from sandboxer.kernel.errors import ImageBuildFailed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# In bash alone, as a package's script may have nothing else.
REACHES = 'timeout 5 bash -c "exec 3<>/dev/tcp/$0/$1" 2>/dev/null && echo reached || echo not'
METADATA = "169.254.169.254"


class _Mirror(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.path} of {self.headers['host']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[tuple[str, int]]:
    """Something on this host's loopback: a mirror, or a service that is no business of a build."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Mirror) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield "127.0.0.1", server.server_port
        server.shutdown()
        thread.join()


def naming(*uris: str) -> Mirrors:
    sources = tuple(Source(uri, "stable", ("main",)) for uri in uris)
    return Mirrors(distribution="debian", suite="stable", building=sources, inside=sources)


def inside(mirrors: Mirrors, *command: str, proxies: dict[str, str] | None = None) -> str:
    with open_build_network(mirrors, proxies or {}) as network:
        done = subprocess.run(
            network.entering(command),
            pass_fds=(network.namespace,),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    return (done.stdout + done.stderr).strip()


def test_nothing_but_the_proxy_can_be_reached(mirror: tuple[str, int]) -> None:
    nobody = naming("http://mirror.invalid/debian")
    assert inside(nobody, "bash", "-c", REACHES, mirror[0], str(mirror[1])) == "not"
    assert inside(nobody, "bash", "-c", REACHES, METADATA, "80") == "not"
    assert inside(nobody, "bash", "-c", REACHES, "127.0.0.1", str(PORT)) == "reached"


def asked(mirrors: Mirrors, request: str, proxies: dict[str, str] | None = None, *, then: str = "") -> str:
    """What the proxy says to these bytes, the first line and the last."""
    script = f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf '{request}' >&3; {then} timeout 10 cat <&3"
    lines = inside(mirrors, "bash", "-c", script, proxies=proxies).splitlines()
    return f"{lines[0].strip()} {lines[-1]}" if lines else ""


def test_the_proxy_fetches_from_mirrors_and_refuses_all_else(mirror: tuple[str, int]) -> None:
    host, port = mirror
    ours, get = naming(f"http://{host}:{port}/debian"), "Connection: close\\r\\n\\r\\n"
    there = f"GET http://{host}:{port}/debian/a HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n{get}"
    assert asked(ours, there) == f"HTTP/1.1 200 OK /debian/a of {host}:{port}"
    for elsewhere in (f"{host}:{port + 1}", f"localhost:{port}", METADATA):
        refused = asked(ours, f"GET http://{elsewhere}/ HTTP/1.1\\r\\nHost: x\\r\\n{get}")
        assert refused.startswith("HTTP/1.1 403"), refused
        assert asked(ours, f"CONNECT {elsewhere} HTTP/1.1\\r\\n\\r\\n").startswith("HTTP/1.1 403")
    # As clients do: what goes through the tunnel is sent once it stands.
    through = f"read -r line <&3; echo $line; printf 'GET /b HTTP/1.1\\r\\nHost: m\\r\\n{get}' >&3;"
    tunnel = asked(ours, f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n", then=through)
    assert tunnel == "HTTP/1.1 200 Connection established /b of m"


def test_a_proxy_of_the_hosts_own_apt_is_gone_through(mirror: tuple[str, int]) -> None:
    proxies = {"http::proxy": f"http://{mirror[0]}:{mirror[1]}"}
    request = (
        "GET http://mirror.invalid/a HTTP/1.1\\r\\nHost: mirror.invalid\\r\\nConnection: close\\r\\n\\r\\n"
    )
    reported = asked(naming("http://mirror.invalid/debian"), request, proxies)
    assert reported == "HTTP/1.1 200 OK http://mirror.invalid/a of mirror.invalid"
    options = ['Acquire::http::Proxy "http://10.0.0.1:3142"', "Acquire::Retries 3"]
    assert proxies_of(options) == {"http::proxy": "http://10.0.0.1:3142"}
    with pytest.raises(ImageBuildFailed, match=r"no plain http:// one"):
        inside(naming("http://mirror.invalid/"), "true", proxies={"http::proxy": "socks5h://127.0.0.1:1"})


def test_only_mirrors_that_are_fetched_over_a_network_are_named() -> None:
    mirrors = naming("http://a.example/debian", "https://b.example:8443/x", "file:/srv/debian")
    assert mirror_places(mirrors) == [("http", ("a.example", 80)), ("https", ("b.example", 8443))]


def test_processes_of_the_host_are_not_seen_so_their_network_cannot_be_entered() -> None:
    reported = inside(naming(), "bash", "-c", "echo /proc/[0-9]*; readlink /proc/1/ns/net /proc/self/ns/net")
    listed, first, own = reported.splitlines()
    assert len(listed.split()) <= 2
    assert first == own != os.readlink("/proc/self/ns/net")


# -- a whole build -------------------------------------------------------------------------------------------


def nosy_package(folder: Path, port: int) -> Source:
    """A repository with one package, whose script tries to reach this host and the metadata service."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = "Package: nosy\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: x\n"
    (tree / "DEBIAN/control").write_text(fields)
    places = (("127.0.0.1", port), (METADATA, 80), ("127.0.0.1", PORT))
    tries = "".join(f"bash -c '{REACHES}' {host} {number} >> /nosy\n" for host, number in places)
    (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\n{tries}exit 0\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    repository = folder / "repository"
    repository.mkdir()
    package = repository / "nosy.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(package)], check=True, capture_output=True)
    content = package.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    listing = f"{fields}Filename: ./nosy.deb\nSize: {len(content)}\nSHA256: {digest}\n"
    (repository / "Packages").write_text(listing)
    return Source(f"[trusted=yes] copy:{repository}", "./", ())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="needs mmdebstrap")
def test_a_script_of_a_package_reaches_nothing_while_packages_are_installed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        recipe = replace(load_recipe("base")[0], packages=("bash", "coreutils", "nosy"))
        mirrors = choose_mirrors(recipe, _os_release(), _host_sources(Path("/etc/apt")))
        nosy = nosy_package(tmp_path, service.getsockname()[1])
        building = replace(mirrors, building=(*mirrors.building, nosy))
        with hold_images(tmp_path) as lock:
            bootstrap(recipe, building, tmp_path / "rootfs", lock, lambda _: None)
    assert (tmp_path / "rootfs/nosy").read_text().split() == ["not", "not", "reached"]
    assert (tmp_path / "rootfs/usr/bin/bash").exists()

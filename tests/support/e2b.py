"""Platforms for the real SDKs of E2B, which read their environment."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2b import Sandbox, SandboxState
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of
from tests.support.platforms import NONE, PROGRAM, Up, free_port, real_platform


def new_api_key(up: Up, account: str = "e2b") -> str:
    """A key of an account with sats, as an API key of E2B."""
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        made = owner.keys.create("e2b", account)
        return api_key_of(owner.keys.issue_bearer(made.public_key).bearer_token)


@contextmanager
def pointed_at(up: Up, api_key: str) -> Iterator[None]:
    """The SDK of this process talks to the platform meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("E2B_API_KEY", api_key)
        patch.setenv("E2B_API_URL", f"{up.url}/e2b")
        patch.setenv("E2B_SANDBOX_URL", f"{up.url}/e2b/envd")
        patch.setenv("E2B_VOLUME_API_URL", f"{up.url}/e2b")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


INSTALLED = Path("/var/tmp/sandboxer-e2b")
# All of a run come from one address and one account, and many of them fail on purpose.
PATIENT = dict.fromkeys(
    (
        "SANDBOXER_LIMIT_BUCKET_ONLY",
        "SANDBOXER_LIMIT_ADDRESS",
        "SANDBOXER_LIMIT_REFUSALS",
        "SANDBOXER_LIMIT_PORT_REFUSALS",
        "SANDBOXER_LIMIT_WAKES",
    ),
    "100000",
)


@dataclass(frozen=True)
class Tls:
    """A platform with TLS below a domain, and what a program of E2B's is given to use it."""

    up: Up
    key: str
    domain: str
    authority: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of a program that knows nothing but the domain and the key, and trusts our authority."""
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "SANDBOXER_"))
        }
        trusted = dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), str(self.authority))
        return plain | trusted | {"E2B_DOMAIN": self.domain, "E2B_API_KEY": self.key}


@contextmanager
def tls_platform(
    state: Path,
    *,
    settings: Mapping[str, str] = NONE,
    pool_mb: int = 3072,
    program: str = PROGRAM,
    domain: str = "localhost",
    port: int | None = None,
) -> Iterator[Tls]:
    """`sandboxer up --https` on real walls, with a key of an account."""
    port = port or free_port()
    chosen = {
        "SANDBOXER_CHARGING": "false",
        "SANDBOXER_HTTPS": "true",
        "SANDBOXER_PROXY_DOMAIN": domain,
        "SANDBOXER_PROXY_HTTPS_PORT": str(port),
        **PATIENT,
        **settings,
    }
    with real_platform(state, settings=chosen, pool_mb=pool_mb, program=program) as up:
        authority = state / "edge/certificates/pki/authorities/local/root.crt"
        deadline = time.monotonic() + 60
        while not authority.is_file():
            assert time.monotonic() < deadline, f"there is no {authority}"
            time.sleep(0.05)
        yield Tls(up, new_api_key(up), domain if port == 443 else f"{domain}:{port}", authority)


class Names:
    """A name server that leads every name below `localhost` and `test` to this machine and knows no other,
    for programs that take no proxy. They see it in a mount namespace of their own, whose `resolv.conf` is
    another."""

    def __init__(self, folder: Path) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        address = f"127.53.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self._socket.bind((address, 53))
        self._file = folder / "resolv.conf"
        self._file.write_text(f"nameserver {address}\n")
        threading.Thread(target=self._serve, daemon=True).start()

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns the command that runs another one where these names are known."""
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self._file), *words]

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                asked, whom = self._socket.recvfrom(4096)
                with suppress(IndexError, struct.error):
                    self._socket.sendto(_answer(asked), whom)

    def close(self) -> None:
        self._socket.close()


def _answer(asked: bytes) -> bytes:
    """Returns the address of this machine for a name that is ours, as RFC 1035 has it."""
    end = asked.index(b"\0", 12) + 5
    question = asked[12:end]
    is_here = question[:-4].lower().endswith((b"\x09localhost\0", b"\x04test\0"))
    wants_ipv4 = struct.unpack(">H", question[-4:-2])[0] == 1
    records = (
        b"\xc0\x0c" + struct.pack(">HHIH4B", 1, 1, 60, 4, 127, 0, 0, 1) if is_here and wants_ipv4 else b""
    )
    # No error for what is here, though it may have no address of the kind; no such name for the rest.
    head = struct.pack(">HHHHH", 0x8180 if is_here else 0x8183, 1, bool(records), 0, 0)
    return asked[:2] + head + question + records


def python_with(*packages: str) -> str:
    """Returns the interpreter of an environment with these packages, made once, outside of this tree."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", *packages], check=True)

    return str(_made_once(packages, make) / "bin/python")


def node_with(*packages: str) -> Path:
    """Returns a folder with these packages, made once, outside of this tree."""

    def make(folder: Path) -> None:
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        quiet = ("--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error")
        subprocess.run(["npm", "install", *quiet, *packages], cwd=folder, check=True)

    return _made_once(packages, make)


def _made_once(packages: Sequence[str], make: Callable[[Path], None]) -> Path:
    folder = INSTALLED / "+".join(packages).replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (INSTALLED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder


class Resolver:
    """A proxy that leads every name to this machine, as a resolver with a wildcard would: the machine of a
    test may have none."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._tunnel, args=self._listening.accept()[:1], daemon=True).start()

    def _tunnel(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            port = int(head.split()[1].rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port)) as there:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                threading.Thread(target=_pump, args=(there, client), daemon=True).start()
                _pump(client, there)

    def close(self) -> None:
        self._listening.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


def until_paused(sandbox: Sandbox) -> None:
    deadline = time.monotonic() + 60
    while sandbox.get_info().state is not SandboxState.PAUSED:
        assert time.monotonic() < deadline, "it is not paused"
        # Asked more often, it would be told to wait.
        time.sleep(0.5)

"""Platforms for the real SDKs of E2B, which read their environment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b.keys import api_key_of
from tests.support.platforms import Up


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
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


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

"""Names of somebody else's that lead to this machine for some programs alone.

The programs run in a network and a mount namespace of their own: its `/etc/hosts` has a line for the names,
its list of authorities has one more, and whatever connects to port 443 there comes out at a port of ours. Its
list of users names another home, for programs that do not ask the environment. The machine's own files and
network stay as they are.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_SYSTEM = Path("/etc/ssl/certs/ca-certificates.crt")
_USERS = Path("/etc/passwd")
# Inside: brings the loopback up, binds the files, and hands a listening socket out.
_INSIDE = """
import socket, subprocess, sys
channel, *files = sys.argv[1:]
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for file, place in zip(files[::2], files[1::2]):
    subprocess.run(["mount", "--bind", file, place], check=True)
listening = socket.create_server(("127.0.0.1", 443), backlog=64)
outside = socket.socket(fileno=int(channel))
socket.send_fds(outside, [b"."], [listening.fileno()])
listening.close()
outside.recv(1)
"""


class BorrowedNames:
    def __init__(self, folder: Path, names: Sequence[str], authority: Path, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authorities = folder / "authorities.pem"
        self.authorities.write_bytes(_SYSTEM.read_bytes() + authority.read_bytes())
        hosts = folder / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
        self.home = folder / "home"
        users = folder / "passwd"
        users.write_text(re.sub(r"(?m)^(root:.*:)/[^:]*(:[^:]*)$", rf"\1{self.home}\2", _USERS.read_text()))
        self._port = port
        ours, theirs = socket.socketpair()
        bound = {hosts: "/etc/hosts", self.authorities: os.path.realpath(_SYSTEM), users: str(_USERS)}
        words = ["unshare", "--net", "--mount", sys.executable, "-c", _INSIDE, str(theirs.fileno())]
        words += [str(word) for pair in bound.items() for word in pair]
        self._holder = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        theirs.close()
        self._channel = ours
        ours.settimeout(30)
        _, found, _, _ = socket.recv_fds(ours, 1, 1)
        assert found, "the namespace was not made"
        self._listening = socket.socket(fileno=found[0])
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """For programs that bring a list of authorities of their own, or ask it for a home."""
        trusting = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE")
        return {**dict.fromkeys(trusting, str(self.authorities)), "HOME": str(self.home)}

    def command(self, words: Sequence[str], folder: Path) -> list[str]:
        """Returns the command that runs another one, in a folder, where these names are known."""
        inside = ["nsenter", f"--target={self._holder.pid}", "--net", "--mount"]
        return [*inside, "sh", "-c", 'cd "$0" && exec "$@"', str(folder), *words]

    def close(self) -> None:
        self._channel.close()
        self._holder.wait(30)
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as there:
            threading.Thread(target=_pump, args=(there, client), daemon=True).start()
            _pump(client, there)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)

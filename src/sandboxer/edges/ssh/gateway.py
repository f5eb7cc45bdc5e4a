"""Opens the SSH gateway on an open platform, and closes it with all its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncssh

from sandboxer.access.ssh import HOST_KEY_FILE, Gateway, fingerprint_of
from sandboxer.edges.ssh.channels import Listener
from sandboxer.edges.ssh.dependencies import Bounds, Crowd, SshDependencies
from sandboxer.edges.ssh.door import Door
from sandboxer.identity.seal import create_private_file
from sandboxer.kernel.tasks import own_tasks
from sandboxer.wiring import Platform

LOOK_EVERY_S = 0.5
KEEPALIVE_S = 30
# Without SHA-1, which old clients use with RSA keys.
SIGNATURES = [
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
]


@asynccontextmanager
async def open_gateway(
    platform: Platform, listening: socket.socket, *, bounds: Bounds | None = None
) -> AsyncIterator[Gateway]:
    """Serves on a socket that is already bound."""
    # The library would log every command, and commands are private.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    dependencies = SshDependencies(platform, Crowd(bounds or Bounds()))
    key = load_host_key(platform.settings.state_dir)
    acceptor = await asyncssh.listen(
        tunnel=Listener(listening, platform.front),
        server_factory=lambda: Door(dependencies),
        server_host_keys=[key],
        encoding=None,
        window=dependencies.crowd.bounds.window_bytes,
        public_key_auth=True,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        compression_algs=["none"],
        signature_algs=SIGNATURES,
        login_timeout=dependencies.crowd.bounds.login_s,
        keepalive_interval=KEEPALIVE_S,
        keepalive_count_max=4,
        server_version="sandboxer",
    )
    gateway = _gateway(platform, listening, key)
    platform.access.ssh.gateway = gateway
    try:
        async with own_tasks() as tasks:
            tasks.start(_look_after(dependencies), name="ssh connections")
            yield gateway
    finally:
        platform.access.ssh.gateway = None
        acceptor.close()
        for door in list(dependencies.doors):
            door.hang_up("the platform is stopping")
        await acceptor.wait_closed()


def load_host_key(folder: Path) -> asyncssh.SSHKey:
    """Returns the host key, which is made once and readable only by this user."""
    path = folder / HOST_KEY_FILE
    if not path.exists():
        made = asyncssh.generate_private_key("ssh-ed25519", comment="sandboxer")
        create_private_file(path, made.export_private_key().decode("ascii"))
    return asyncssh.import_private_key(path.read_text("ascii"))


async def _look_after(dependencies: SshDependencies) -> None:
    """Ends within a second whatever is no longer allowed."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        for door in list(dependencies.doors):
            await door.look()
        dependencies.crowd.sweep(loop.time())
        dependencies.rate_limit.sweep(time.monotonic())


def _gateway(platform: Platform, listening: socket.socket, key: asyncssh.SSHKey) -> Gateway:
    address, port = listening.getsockname()[:2]
    public = urlsplit(platform.settings.public_url or "").hostname
    host = public or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    line = key.export_public_key().decode("ascii").split()
    return Gateway(host, port, f"{line[0]} {line[1]}", fingerprint_of(key.public_data))

"""What git, editors and the lesser known flags of the stock clients ask of the gateway. Real walls."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.http.real import sh
from tests.support.ssh import Gated, Said, free_port, gated, run  # noqa: F401

WHO = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME"), "a@b")
SOCKET_SERVER = """
import socket
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/editor.sock'); s.listen(9)
while True:
    c = s.accept()[0]; c.recv(999); c.sendall(b'HTTP/1.0 200 OK\\r\\n\\r\\nby socket'); c.close()
"""


async def test_git_clones_pushes_and_fetches(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    assert (await sh(gated.served, path, "git init -q --bare -b main /root/repo.git"))["exit_code"] == 0
    env = {"GIT_SSH_COMMAND": shlex.join(["ssh", *gated.config(key, path)]), "GIT_CONFIG_GLOBAL": "/dev/null"}
    env |= WHO | {"GIT_COMMITTER_EMAIL": "a@b"}

    async def git(*words: str, at: str = ".") -> Said:
        said = await run("git", *words, folder=gated.folder / at, env=env)
        assert said.code == 0, (words, said)
        return said

    await git("clone", "-q", "ssh://box/root/repo.git", "one")
    blob = os.urandom(2_000_000)
    (gated.folder / "one" / "blob").write_bytes(blob)
    await git("add", ".", at="one")
    await git("commit", "-qm", "first", at="one")
    await git("push", "-q", "origin", "HEAD:main", at="one")
    # The short spelling, relative to home, as most write it.
    await git("clone", "-q", "-b", "main", "box:repo.git", "two")
    assert (gated.folder / "two" / "blob").read_bytes() == blob
    (gated.folder / "one" / "more").write_text("more\n")
    await git("add", ".", at="one")
    await git("commit", "-qm", "second", at="one")
    await git("push", "-q", "origin", "HEAD:main", at="one")
    await git("fetch", "-q", at="two")
    assert (await git("log", "--format=%s", "origin/main", at="two")).out == b"second\nfirst\n"
    missing = await run("git", "ls-remote", "box:nowhere.git", folder=gated.folder, env=env)
    assert missing.code == 128
    assert "does not appear to be a git repository" in missing.err


async def test_what_an_editor_asks_for_is_there(gated: Gated) -> None:
    """The installer as a script on stdin beside a dynamic forward, its server on a port or on a socket."""
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    config = gated.config(key, path)
    socks, local = free_port(), gated.folder / "editor.sock"
    script = (
        "uname -sm; mkdir -p ~/.editor/bin; cd ~/.editor/bin; command -v curl tar >/dev/null && echo tools\n"
        f"python3 -c {shlex.quote(SOCKET_SERVER)} >/dev/null 2>&1 </dev/null &\n"
        "cd /etc; python3 -m http.server -b 127.0.0.1 8125 >/dev/null 2>&1 </dev/null &\n"
        "until [ -S /tmp/editor.sock ] && (: </dev/tcp/127.0.0.1/8125) 2>/dev/null; do sleep .05; done\n"
        "echo listening; read held\n"
    )
    flags = ["-T", "-D", f"127.0.0.1:{socks}", "-L", f"{local}:/tmp/editor.sock"]
    editor = await asyncio.create_subprocess_exec(
        "ssh", *config, *flags, "-L", f"{local}2:/tmp/none", "box", "bash", stdin=-1, stdout=-1, stderr=-1
    )
    assert editor.stdin is not None
    assert editor.stdout is not None
    editor.stdin.write(script.encode())
    async with asyncio.timeout(30):
        seen = [await editor.stdout.readline() for _ in range(3)]
    assert seen[0].startswith(b"Linux ")
    assert seen[1:] == [b"tools\n", b"listening\n"]
    proxy = ["--socks5-hostname", f"127.0.0.1:{socks}"]
    by_port = await run("curl", "-sS", *proxy, "http://localhost:8125/debian_version", folder=gated.folder)
    assert by_port.code == 0, by_port
    by_socket = await run("curl", "-sS", "--unix-socket", str(local), "http://x/", folder=gated.folder)
    assert by_socket.out == b"by socket"
    elsewhere = await run("curl", "-sS", *proxy, "http://example.com/", folder=gated.folder)
    assert elsewhere.code != 0
    nobody = await run("curl", "-sS", "--unix-socket", f"{local}2", "http://x/", folder=gated.folder)
    assert nobody.code != 0
    editor.kill()
    _, err = await editor.communicate()
    assert b"only localhost, the sandbox itself, can be reached, not example.com" in err
    assert b"ENOENT for /tmp/none" in err
    said = await run("ssh", *config, "-s", "box", "no-such-subsystem", folder=gated.folder)
    assert "subsystem request failed" in said.err


async def test_one_connection_serves_many(gated: Gated) -> None:
    """ControlMaster, as git and editors use it: commands, files and a forward over what is open already."""
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    control = ["-o", f"ControlPath={gated.folder}/control"]
    config = [*gated.config(key, path), *control]
    alive = ["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2", "-o", "ControlPersist=yes"]
    master = ["-fN", "-o", "ControlMaster=yes", *alive]
    opened = await asyncio.create_subprocess_exec("ssh", *config, *master, "box", stderr=-3, stdout=-3)
    assert await opened.wait() == 0
    try:
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(run("ssh", *config, "box", f"sleep 1; echo {n}", folder=gated.folder))
                for n in range(5)
            ]
        assert [task.result().out for task in asked] == [b"%d\n" % n for n in range(5)]
        listed = await run(
            "sftp", *config, "-b", "-", "box", stdin=b"ls /etc/hostname\n", folder=gated.folder
        )
        assert b"/etc/hostname" in listed.out
        text = (await gated.served.client.get(f"{path}/events?follow=false")).text
        assert text.count("event: ssh.connected") == 1
    finally:
        await run("ssh", *config, "-O", "exit", "box", folder=gated.folder)


@pytest.mark.slow
async def test_a_hundred_megabytes_pass_unharmed(gated: Gated) -> None:
    path, key = await gated.served.sandbox(resources={"disk_mb": 300}), gated.new_key()
    await gated.add(key)
    config = gated.config(key, path)
    big = os.urandom(1_000_000) * 100
    wanted = hashlib.sha256(big).hexdigest().encode()
    (gated.folder / "big").write_bytes(big)
    through = await run("ssh", *config, "box", "tee /root/piped | sha256sum", stdin=big, folder=gated.folder)
    assert through.out.split()[0] == wanted
    # The legacy protocol: the sandbox's own scp.
    for words in (["-O", "big", "box:/tmp/legacy"], ["-O", "-r", "box:/tmp/legacy", "back"]):
        said = await run("scp", *config, *words, folder=gated.folder)
        assert said.code == 0, said
    assert _digest(gated.folder / "back") == wanted
    back = await run("ssh", *config, "-o", "RekeyLimit=8M", "box", "cat piped", folder=gated.folder)
    assert hashlib.sha256(back.out).hexdigest().encode() == wanted


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).hexdigest().encode()


async def test_the_command_line_knows_the_host_and_writes_what_editors_read(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    sandbox_id, known = path.rsplit("/", 1)[1], gated.folder / "home" / "known"
    where = ["--url", gated.served.url, "--state-dir", str(gated.folder / "state")]

    async def sandboxer(*words: str) -> Said:
        return await run(sys.executable, "-m", "sandboxer.edges.cli.main", *words, folder=gated.folder)

    # With a key made for the one run, which is gone after it.
    said = await sandboxer("ssh", *where, sandbox_id, "--", "echo here; exit 4")
    assert (said.code, said.out) == (4, b"here\n"), said
    assert len((await gated.served.client.get("/v1/ssh-keys")).json()["ssh_keys"]) == 1
    known.parent.mkdir()
    mine = f"[127.0.0.1]:{gated.gateway.port}"
    known.write_text(f"other ssh-ed25519 AAAA\n{mine} ssh-ed25519 AAAAold\n")
    options = ["--name", "web", "-i", str(key), "--known-hosts", str(known)]
    block = await sandboxer("ssh-config", *where, sandbox_id, *options)
    assert block.code == 0, block
    assert known.read_text() == f"other ssh-ed25519 AAAA\n{mine} {gated.gateway.host_key}\n"
    (gated.folder / "written").write_bytes(block.out)
    by_name = await run(
        "ssh", "-F", "written", "-o", "BatchMode=yes", "web", "echo by name", folder=gated.folder
    )
    assert by_name.out == b"by name\n", by_name
    # A gateway with another key is not talked to.
    other = gated.new_key("other").with_suffix(".pub").read_text()
    known.write_text(f"{mine} {other}")
    forged = await run("ssh", "-F", "written", "-o", "BatchMode=yes", "web", "true", folder=gated.folder)
    assert forged.code == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in forged.err


async def test_words_after_the_id_reach_the_program_as_they_are(gated: Gated) -> None:
    path = await gated.served.sandbox(name="by ssh")
    where = ("--url", gated.served.url, "--state-dir", str(gated.served.state_dir))

    async def ssh(word: str, *words: str) -> Said:
        return await run(
            sys.executable, "-m", "sandboxer.edges.cli.main", "ssh", *where, word, "--", *words,
            folder=gated.folder,
        )  # fmt: skip

    for word in (path.rsplit("/", 1)[1], "by ssh"):
        assert (await ssh(word, "sh", "-c", "exit 9")).code == 9
    assert (await ssh("by ssh", "printf", "%s|", "a  b", "*", "$HOME", "it's")).out == b"a  b|*|$HOME|it's|"
    # One word is text for the shell inside, as with ssh itself.
    assert (await ssh("by ssh", "echo a b | wc -w")).out.strip() == b"2"

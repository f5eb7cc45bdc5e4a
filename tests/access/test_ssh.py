"""The SSH gateway with the stock clients over loopback, and what it refuses. Real walls."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios

from sandboxer.access.ssh import HOST_KEY_FILE
from sandboxer.edges.ssh.dependencies import Bounds
from tests.support.http.real import sh
from tests.support.http.served import eventually
from tests.support.ssh import (
    Gated,
    Said,
    free_port,
    gated,  # noqa: F401
    run,
)


async def test_commands_run_and_end_as_by_sshd(gated: Gated) -> None:
    path, key = await gated.served.sandbox(env={"COLOUR": "green"}), gated.new_key()
    await gated.add(key, sandbox_id=path.rsplit("/", 1)[1])
    said = await gated.ssh(key, path, "echo $COLOUR; pwd; cat; echo oops >&2; exit 7", stdin=b"fed\n")
    assert (said.code, said.out, said.err) == (7, b"green\n/root\nfed\n", "oops\n")
    big = os.urandom(3_000_000)
    assert (await gated.ssh(key, path, "cat", stdin=big)).out == big
    assert (await gated.ssh(key, path, "kill -TERM $$")).code == 255
    # A command that is left in the background on purpose goes on; one whose client goes away does not.
    await gated.ssh(key, path, "setsid sleep 4242 >/dev/null 2>&1 </dev/null &")
    held = await gated.started(key, path, "echo up; exec sleep 4343")
    assert held.stdout is not None
    assert await held.stdout.readline() == b"up\n"
    held.kill()
    await held.wait()
    seen = ""
    for _ in range(100):
        seen = str((await sh(gated.served, path, "ps -eo args"))["stdout"])
        if "sleep 4343" not in seen:
            break
        await asyncio.sleep(0.05)
    assert "sleep 4343" not in seen
    assert "sleep 4242" in seen
    text = (await gated.served.client.get(f"{path}/events?follow=false")).text
    assert "ssh.connected" in text
    assert oct((gated.folder / "state" / HOST_KEY_FILE).stat().st_mode & 0o777) == "0o600"


async def test_a_shell_has_a_terminal_that_follows_the_clients(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    ours, theirs = os.openpty()
    set_size(ours, rows=33, cols=101)
    user = path.rsplit("/", 1)[1]
    client = await asyncio.create_subprocess_exec(
        "ssh", *gated.options(key), f"{user}@127.0.0.1", stdin=theirs, stdout=theirs, stderr=theirs
    )
    try:
        os.write(ours, b"stty size; tty; echo $TERM-term; pwd\n")
        seen = await until(ours, b"-term\r\n", b"/root")
        assert b"33 101" in seen
        assert b"/dev/pts/" in seen
        set_size(ours, rows=44, cols=55)
        client.send_signal(signal.SIGWINCH)
        os.write(ours, b"sleep 0.5; stty size\n")
        await until(ours, b"44 55")
        # An interrupt is the terminal's business; the shell goes on, and its exit code is the client's.
        # Said by the job itself: before it is in the foreground, an interrupt would be for the shell alone.
        os.write(ours, b"sh -c 'echo be\"\"gun; exec sleep 1000'\n")
        await until(ours, b"begun")
        os.write(ours, b"\x03")
        # The shell throws away what was typed before its next prompt.
        await until(ours, b"^C", b"# ")
        os.write(ours, b"exit 9\n")
        async with asyncio.timeout(60):
            assert await client.wait() == 9
    finally:
        os.close(ours)
        os.close(theirs)


def set_size(terminal: int, *, rows: int, cols: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


async def until(terminal: int, *wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(60):
        while not all(text in seen for text in wanted):
            seen += await asyncio.to_thread(os.read, terminal, 4096)
    return seen


async def test_files_are_copied_by_scp_and_sftp(gated: Gated) -> None:
    path, key = await gated.served.sandbox(resources={"disk_mb": 64}), gated.new_key()
    await gated.add(key)
    user = path.rsplit("/", 1)[1]
    big = os.urandom(5_000_000)
    (gated.folder / "big").write_bytes(big)
    (gated.folder / "tree" / "deep").mkdir(parents=True)
    (gated.folder / "tree" / "deep" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (gated.folder / "tree" / "deep" / "run.sh").chmod(0o750)
    scp = ["scp", *gated.options(key, "-P")]
    for words in (
        [*scp, "-p", "big", f"{user}@127.0.0.1:/tmp/big"],
        [*scp, "-rp", "tree", f"{user}@127.0.0.1:"],
        [*scp, f"{user}@127.0.0.1:/tmp/big", "back"],
        [*scp, "-r", f"{user}@127.0.0.1:tree", "tree-back"],
    ):
        said = await run(*words, folder=gated.folder)
        assert said.code == 0, (words[-2:], said)
    assert (gated.folder / "back").read_bytes() == big
    assert (gated.folder / "tree-back" / "deep" / "run.sh").read_text() == "#!/bin/sh\necho ran\n"
    inside = await sh(gated.served, path, "/root/tree/deep/run.sh; stat -c %a /root/tree/deep/run.sh")
    assert inside["stdout"] == "ran\n750\n"
    (gated.folder / "half").write_bytes(big[:1000])
    await sh(gated.served, path, "cp /tmp/big /root/tree/shorter")
    batch = (
        b"cd /root/tree\nls -la\nput big second\nrename second third\nchmod 600 third\nln -s third link\n"
        b"mkdir new\nrmdir new\nget third fetched\nrm third\n"
        b"put half\nreput big half\nput half shorter\nbye\n"
    )
    said = await run(
        "sftp", *gated.options(key, "-P"), "-b", "-", f"{user}@127.0.0.1", stdin=batch, folder=gated.folder
    )
    assert said.code == 0, said
    assert b"deep" in said.out
    assert (gated.folder / "fetched").read_bytes() == big
    same = "cmp /tmp/big half && cmp -n 1000 half shorter && stat -c %s shorter"
    assert (await sh(gated.served, path, same, cwd="/root/tree"))["stdout"] == "1000\n"
    missing = await run(*scp, f"{user}@127.0.0.1:/nowhere", "x", folder=gated.folder)
    assert missing.code != 0
    assert "No such file" in missing.err
    # A full disk is an error, and the file that was there stays.
    (gated.folder / "huge").write_bytes(bytes(80_000_000))
    full = await run(*scp, "huge", f"{user}@127.0.0.1:/tmp/big", folder=gated.folder)
    assert full.code != 0
    assert (await sh(gated.served, path, "stat -c %s /tmp/big"))["stdout"] == "5000000\n"


async def test_half_a_file_does_not_replace_a_whole_one(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    user = path.rsplit("/", 1)[1]
    await sh(gated.served, path, "echo whole > /root/file")
    (gated.folder / "long").write_bytes(bytes(60_000_000))
    words = ["scp", "-l", "8000", *gated.options(key, "-P"), "long", f"{user}@127.0.0.1:/root/file"]
    pulse = gated.served.platform.sandboxes.activity.pulse(user)
    client = await asyncio.create_subprocess_exec(*words, cwd=gated.folder)
    # The line by which it is written is open as long as that lasts.
    await eventually(lambda: pulse.open_lines > 0, seconds=20)
    client.terminate()
    await client.wait()
    await eventually(lambda: pulse.open_lines == 0)
    assert (await sh(gated.served, path, "cat /root/file"))["stdout"] == "whole\n"


async def test_a_port_inside_is_forwarded_and_nothing_else(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    serve = "import http.server as h; h.HTTPServer(('127.0.0.1', 8123), h.SimpleHTTPRequestHandler)"
    argv = ["python3", "-c", serve + ".serve_forever()"]
    await gated.served.client.post(f"{path}/processes", {"argv": argv, "cwd": "/etc"})
    knock = "for i in $(seq 100); do (: </dev/tcp/127.0.0.1/8123) 2>&- && exit; sleep .05; done"
    await gated.served.client.post(f"{path}/exec", {"command": knock})
    ask = b"GET /hostname HTTP/1.0\r\n\r\n"
    said = await gated.ssh(key, path, stdin=ask, flags=("-W", "localhost:8123"))
    assert b"200 OK" in said.out, said
    local = free_port()
    held = await gated.started(key, path, "-L", f"127.0.0.1:{local}:127.0.0.1:8123", "echo up; read x")
    assert held.stdout is not None
    assert await held.stdout.readline() == b"up\n"
    curl = await run("curl", "-sS", f"http://127.0.0.1:{local}/hostname", folder=gated.folder)
    assert (curl.code, curl.err) == (0, "")
    held.kill()
    await held.wait()
    api = gated.served.url.rsplit(":", 1)[1]
    # The API listens on the host's loopback under this port; inside nothing does.
    for target in (f"localhost:{api}", "10.0.0.1:80", "169.254.169.254:80", "example.com:80", "[::]:22"):
        said = await gated.ssh(key, path, stdin=ask, flags=("-W", target))
        assert said.out == b"", target
        assert said.code != 0, target
    for flags in (("-R", "0:localhost:1"), ("-R", "/tmp/x:localhost:1")):
        said = await gated.ssh(key, path, "true", flags=("-o", "ExitOnForwardFailure=yes", *flags))
        assert said.code == 255, flags


async def test_who_has_no_right_learns_nothing(gated: Gated) -> None:
    served = gated.served
    path, mine = await served.sandbox(), gated.new_key("mine")
    stranger, theirs = await served.stranger(), gated.new_key("theirs")
    await gated.add(theirs, stranger)
    foreign = await gated.ssh(theirs, path, "true")
    unknown = await gated.ssh(theirs, "/sbx_0123456789abcdefghjkmnpqrs", "true")
    nobody = await gated.ssh(mine, path, "true")
    words = {said.err.split("@", 1)[1] for said in (foreign, unknown, nobody)}
    assert words == {"127.0.0.1: Permission denied (publickey).\r\n"}
    user = path.rsplit("/", 1)[1]
    answer = await stranger.post(
        "/v1/ssh-keys", {"public_key": theirs.with_suffix(".pub").read_text(), "sandbox_id": user}
    )
    assert answer.status_code == 404
    # Of another sandbox of the same account.
    other = await served.sandbox()
    await gated.add(mine, sandbox_id=other.rsplit("/", 1)[1])
    assert (await gated.ssh(mine, path, "true")).code == 255
    assert (await gated.ssh(mine, other, "true")).code == 0
    # What a client would like to bring along.
    said = await gated.ssh(
        mine,
        other,
        "env; ls /tmp/ssh-* ~/.Xauthority",
        flags=("-A", "-X", "-o", "SetEnv=LD_PRELOAD=x LANG=C"),
    )
    assert b"LD_PRELOAD" not in said.out
    assert b"SSH_AUTH_SOCK" not in said.out
    assert b"DISPLAY" not in said.out
    assert b"LANG=C\n" in said.out
    await served.client.post(f"{other}/freeze")
    asleep = await gated.ssh(mine, other, "true")
    assert asleep.code == 255
    assert "sandboxer thaw" in asleep.err


async def test_a_crowd_at_the_door_is_bounded(gated: Gated) -> None:
    path, key = await gated.served.sandbox(), gated.new_key()
    await gated.add(key)
    bounds = Bounds()
    crowd: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(1000):
        crowd.append(await asyncio.open_connection("127.0.0.1", gated.gateway.port))
    open_still = 0
    for reader, _ in crowd:
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.02 if open_still > bounds.unknown_per_address else 0.5):
                if await reader.read(100):
                    open_still += 1
    assert open_still <= bounds.unknown_per_address
    for _, writer in crowd:
        writer.close()
    said = Said(255, b"", "")
    for _ in range(50):
        said = await gated.ssh(key, path, "echo in")
        if said.code == 0:
            break
    assert said.out == b"in\n"

"""Programs that know nothing of a proxy, in a real sandbox: their connections are led to it.

Each runs with an empty environment, so that no variable can help it.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import pytest_asyncio

from sandboxer.access.egress import outlets
from tests.access.egress.world import ADDRESS, ADDRESS_6, OWN, Names, certified, listening, public_world, site
from tests.support.egress_inside import run, settings_of
from tests.support.http.real import on_real_walls, why_not
from tests.support.http.served import Served, eventually
from tests.support.oci import EACH_WALL, settings_on

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What came, in one line: what was read, or which error.
TALK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as line:
        line.sendall(sys.argv[3].encode())
        print(line.recv(1000).decode())
except OSError as error:
    print(type(error).__name__, error.errno)
"""
ASK = """
import socket, struct, sys
name, server = sys.argv[1:3]
question = struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0)
question += b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
question += b"\\0" + struct.pack(">HH", int(sys.argv[3]), 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.settimeout(10)
    line.connect((server, 53))
    line.send(question)
    answer = line.recv(512)
print(answer[3] & 15, answer[7], *answer[-4:] if answer[7] else ())
"""


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    known = Names(example_com=ADDRESS, denied_com=ADDRESS, inside_example_com="10.1.2.3")
    with pytest.MonkeyPatch.context() as patched, public_world():
        patched.setattr(outlets, "SystemResolver", lambda: known)
        yield known


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certified(tmp_path_factory.mktemp("tls"), "example.com")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=EACH_WALL)
async def served(
    request: pytest.FixtureRequest, names: Names, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    settings = settings_on(request.param, settings_of(tmp_path_factory.mktemp("led") / "state"))
    async with on_real_walls(settings, disk_mb=128) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def path(served: Served) -> str:
    """One sandbox for all of them; each says what it may reach."""
    return await served.sandbox(network="open")


async def allow(served: Served, path: str, *entries: str, deny: tuple[str, ...] = ()) -> None:
    rules: list[dict[str, object]] = [{"action": "deny", "host": host} for host in deny]
    for entry in entries:
        host, _, port = entry.partition(":")
        ports = [] if port == "*" else [int(port)] if port else [443, 80]
        rules.append({"action": "allow", "host": host, "ports": ports})
    answer = await served.client.send("PUT", f"{path}/egress", body={"rules": rules})
    assert answer.status_code == 200, answer.text


async def bare(served: Served, path: str, *argv: str) -> str:
    """Runs it without a variable but PATH."""
    return (await run(served, path, "env", "-i", "PATH=/usr/bin:/bin", "HOME=/root", *argv)).strip()


async def talk(served: Served, path: str, host: str, port: int, words: str = "") -> str:
    return await bare(served, path, "python3", "-c", TALK, host, str(port), words)


async def denials(served: Served, path: str) -> list[tuple[str, int, str]]:
    found = (await served.client.get(f"{path}/egress/denials")).json()["denials"]
    return [(one["host"], one["port"], one["reason"]) for one in found]


@asynccontextmanager
async def greeting(port: int, words: bytes = b"welcome") -> AsyncIterator[list[bytes]]:
    """A server that speaks first, as databases do."""
    heard: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        heard.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(greet, sock=listening(ADDRESS, port))
    async with server:
        yield heard


async def test_any_protocol_reaches_a_host_that_a_rule_allows_by_name_or_by_address(
    served: Served, path: str
) -> None:
    await allow(served, path, "example.com:5432")
    async with greeting(5432) as heard:
        assert await talk(served, path, "example.com", 5432, "hello") == "welcome"
        assert await talk(served, path, ADDRESS, 5432) == "ConnectionResetError 104"
        await allow(served, path, f"{ADDRESS}:5432")
        assert await talk(served, path, ADDRESS, 5432, "again") == "welcome"
        assert await talk(served, path, "example.com", 5432) == "ConnectionResetError 104"
        await eventually(lambda: len(heard) == 2)
    assert heard == [b"hello", b"again"]
    assert {(ADDRESS, 5432, "no_rule"), ("example.com", 5432, "no_rule")} <= set(await denials(served, path))


async def test_plain_http_is_judged_by_each_request_and_refused_in_words(served: Served, path: str) -> None:
    await allow(served, path, "example.com")
    async with site() as web:
        web.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        two = ("curl", "-s", "http://example.com/a", "http://example.com/b")
        assert await bare(served, path, *two) == "hellohello"
        assert web.heads[0].startswith(b"GET /a HTTP/1.1\r\nHost: example.com\r\n")
        other = await bare(served, path, "curl", "-s", "-H", "Host: denied.com", "http://example.com/")
        assert '"other_host"' in other
    assert len(web.heads) == 2
    refused = await bare(served, path, "curl", "-s", "http://denied.com/")
    assert "no rule allows denied.com" in refused
    assert "sandboxer egress allow" in refused


async def test_tls_goes_through_whole_and_a_refusal_is_an_alert(
    served: Served, path: str, trusted: ssl.SSLContext
) -> None:
    await allow(served, path, "example.com")
    async with site(port=443, tls=trusted):
        assert await bare(served, path, "curl", "-sk", "https://example.com/") == "hello"
        refused = await bare(served, path, "curl", "-skS", "https://denied.com/")
    assert "access denied" in refused


async def test_nodes_fetch_works(served: Served, path: str, trusted: ssl.SSLContext) -> None:
    await allow(served, path, "example.com")
    script = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => console.log(e.cause.code))"
    insecure = "process.env.NODE_TLS_REJECT_UNAUTHORIZED='0';process.removeAllListeners('warning');"
    async with site(), site(port=443, tls=trusted):
        assert await bare(served, path, "node", "-e", script, "http://example.com/") == "hello"
        over_tls = await bare(served, path, "node", "-e", insecure + script, "https://example.com/")
        assert over_tls.splitlines()[-1] == "hello" or "hello" in over_tls


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return folder


async def _copy(reader: Any, writer: Any) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    if writer.can_write_eof():
        writer.write_eof()


async def test_ssh_and_git_over_it_work(served: Served, path: str, repository: Path) -> None:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        # Nothing of what the client says is run but its choice of these two.
        words = (
            ["git", "upload-pack", str(repository)] if "git" in (process.command or "") else ["echo", "hi"]
        )
        ran = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert ran.stdin is not None
        assert ran.stdout is not None
        feeding = asyncio.create_task(_copy(process.stdin, ran.stdin))
        await _copy(ran.stdout, process.stdout)
        feeding.cancel()
        process.exit(await ran.wait())

    class Anybody(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

    await allow(served, path, "example.com:22")
    ssh = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    async with asyncssh.listen(
        sock=listening(ADDRESS, 22),
        server_factory=Anybody,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        process_factory=serve,
        encoding=None,
    ):
        assert await bare(served, path, *ssh.split(), "a@example.com", "true") == "hi"
        clone = ["git", "clone", "-q", "a@example.com:work", "/tmp/cloned"]
        assert await bare(served, path, "env", f"GIT_SSH_COMMAND={ssh}", *clone) == ""
        log = ("git", "-C", "/tmp/cloned", "log", "--format=%s")
        assert await bare(served, path, *log) == "first"


DIAL = """
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **a) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9000)};
    char got[64] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, a[n - 1], &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) || read(fd, got, 63) < 0) perror("dial");
    puts(got);
}
"""


@pytest.fixture
def dialer(tmp_path: Path) -> bytes:
    """A static program: it brings no library that could be told of a proxy."""
    source, program = tmp_path / "dial.c", tmp_path / "dial"
    source.write_text(DIAL)
    subprocess.run([shutil.which("gcc") or "cc", "-static", "-o", program, source], check=True)
    return program.read_bytes()


async def test_a_static_program_works(served: Served, path: str, dialer: bytes) -> None:
    put = await served.client.put(f"{path}/files/content?path=/tmp/dial&mode=0755", dialer)
    assert put.status_code < 300, put.text
    await allow(served, path, f"{ADDRESS}:*")
    async with greeting(9000):
        assert await bare(served, path, "/tmp/dial", ADDRESS) == "welcome"


async def test_names_are_answered_inside_wherever_they_are_asked_and_never_outside(
    served: Served, path: str, names: Names
) -> None:
    asked = len(names.asked)
    for server in ("198.18.0.1", "8.8.8.8"):
        said = (await bare(served, path, "python3", "-c", ASK, "some.where.org", server, "1")).split()
        assert said[:4] == ["0", "1", "198", "18"], said
    assert await bare(served, path, "python3", "-c", ASK, "some.where.org", "8.8.8.8", "28") == "0 0"
    assert await bare(served, path, "python3", "-c", ASK, "alone", "8.8.8.8", "1") == "3 0"
    local = await bare(served, path, "python3", "-c", ASK, "a.localhost", "8.8.8.8", "1")
    assert local == "0 1 127 0 0 1"
    over_tcp = "options use-vc\\nnameserver 9.9.9.9\\n"
    lookup = f"printf '{over_tcp}' > /etc/resolv.conf; getent ahostsv4 some.where.org"
    assert (await bare(served, path, "sh", "-c", lookup)).startswith("198.18.")
    await bare(served, path, "sh", "-c", "echo nameserver 198.18.0.1 > /etc/resolv.conf")
    assert len(names.asked) == asked


async def test_a_resolver_that_was_killed_is_there_again_with_the_next_question(
    served: Served, path: str
) -> None:
    before = await bare(served, path, "getent", "ahostsv4", "again.org")
    killed = await bare(served, path, "pkill", "-e", "-9", "supervisor-dns")
    assert "killed" in killed
    assert await bare(served, path, "getent", "ahostsv4", "again.org") == before
    who = "ps -o user= -C supervisor-dns"
    assert await bare(served, path, "sh", "-c", who) == "nobody"


async def test_a_question_that_no_process_can_be_had_for_does_not_keep_the_supervisor_busy(
    request: pytest.FixtureRequest, served: Served
) -> None:
    if request.node.callspec.params["served"] == "gvisor":
        pytest.skip("behind gVisor so many processes take more memory than it has, and end it whole")
    path = await served.sandbox(network="open")
    # The time that PID 1 spent in a second after it was asked, with no room for one process more.
    program = """
import os, signal, socket, time
children = []
def spent():
    with open("/proc/1/stat") as stat:
        return sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
try:
    while pid := os.fork():
        children.append(pid)
    signal.pause()
except OSError as error:
    full = error.errno
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    line = socket.socket(socket.AF_INET, kind)
    line.connect(("8.8.8.8", 53))
    line.send(bytes(30))
    time.sleep(0.1)
    before = spent()
    time.sleep(1)
    print(full, spent() - before)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(socket.gethostbyname("room.again.org"))
"""
    *busy, last = (await bare(served, path, "python3", "-c", program)).splitlines()
    assert len(busy) == 2
    for one in busy:
        full, ticks = map(int, one.split())
        assert full == 11
        assert ticks < 20, busy
    assert last.startswith("198.18."), last


async def test_more_names_than_it_remembers_lead_nowhere_but_to_their_own_host(
    served: Served, path: str
) -> None:
    await allow(served, path, "example.com:7000", "*.example.org:7000")
    many = """
import socket
first = socket.gethostbyname("example.com")
seen = {first}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.settimeout(10)
    line.connect(("198.18.0.1", 53))
    for i in range(4096):
        label = b"n%d" % i
        name = bytes([len(label)]) + label + b"\\x07example\\x03org\\0"
        line.send(bytes.fromhex("000701000001000000000000") + name + b"\\0\\x01\\0\\x01")
        seen.add(line.recv(512)[-4:])
print(len(seen), first)
"""
    count, forgotten = (await bare(served, path, "python3", "-c", many)).split()
    assert count == "4097"
    async with greeting(7000):
        assert await talk(served, path, forgotten, 7000) == "ConnectionResetError 104"
        assert (forgotten, 7000, "no_rule") in await denials(served, path)
        assert await talk(served, path, "example.com", 7000, "x") == "welcome"


async def test_what_listens_inside_is_reached_as_before(served: Served, path: str) -> None:
    await allow(served, path)
    program = """
import socket
with socket.create_server(("0.0.0.0", 8080)) as server:
    for host in ("127.0.0.1", "127.3.2.1", "198.18.0.1", socket.gethostname(), "localhost"):
        with socket.create_connection((host, 8080), 10):
            server.accept()[0].close()
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
one.bind(("127.0.0.1", 53))
other.sendto(b"mine", one.getsockname())
print(one.recv(9).decode())
"""
    assert await bare(served, path, "python3", "-c", program) == "mine"


async def test_no_address_but_those_of_the_world_is_reached_though_everything_is_allowed(
    served: Served, path: str
) -> None:
    await allow(served, path, "*:*")
    listener = listening(OWN, 6000)
    with listener:
        for address in (OWN, "10.1.2.3", "169.254.169.254", "192.168.0.1", "198.18.77.7", "100.64.0.1"):
            assert await talk(served, path, address, 6000) == "ConnectionResetError 104", address
        assert await talk(served, path, "inside.example.com", 6000) == "ConnectionResetError 104"
    reasons = {(host, reason) for host, _, reason in await denials(served, path)}
    assert {(OWN, "own_address"), ("169.254.169.254", "not_public")} <= reasons
    assert ("inside.example.com", "not_public") in reasons
    # Of the host's own loopback there is nothing, and IPv6 leads nowhere: programs fall back at once.
    assert (
        await talk(served, path, "127.0.0.1", int(served.url.rpartition(":")[2]))
        == "ConnectionRefusedError 111"
    )
    assert await talk(served, path, ADDRESS_6, 443) == "OSError 101"


async def test_a_deny_is_not_evaded_by_an_address(served: Served, path: str, trusted: ssl.SSLContext) -> None:
    await allow(served, path, "*:*", deny=("denied.com",))
    async with greeting(6001) as heard, site() as web, site(port=443, tls=trusted) as safe:
        assert await talk(served, path, "denied.com", 6001) == "ConnectionResetError 104"
        assert await talk(served, path, ADDRESS, 6001) == "ConnectionResetError 104"
        asked = await bare(served, path, "curl", "-s", "-H", "Host: denied.com", f"http://{ADDRESS}/")
        assert '"address"' in asked
        await allow(served, path, "*:*", f"{ADDRESS}:*", deny=("denied.com",))
        fronted = ("curl", "-skS", "--resolve", f"denied.com:443:{ADDRESS}", "https://denied.com/")
        assert "access denied" in await bare(served, path, *fronted)
        hidden = await bare(served, path, "curl", "-s", "-H", "Host: denied.com", f"http://{ADDRESS}/")
        assert '"other_host"' in hidden
        assert await bare(served, path, "curl", "-sk", f"https://{ADDRESS}/") == "hello"
    assert not heard
    assert not web.heads
    assert len(safe.heads) == 1


async def test_open_is_every_port_but_that_of_mail(served: Served) -> None:
    path = await served.sandbox(network="open")
    async with greeting(6379), greeting(25):
        assert await talk(served, path, "example.com", 6379, "x") == "welcome"
        assert await talk(served, path, ADDRESS, 6379, "x") == "welcome"
        assert await talk(served, path, "example.com", 25) == "ConnectionResetError 104"
    assert await denials(served, path) == [("example.com", 25, "port")]


async def test_nothing_of_it_can_be_changed_from_inside(served: Served, path: str) -> None:
    program = """
import ctypes, fcntl, os, socket, struct
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
# RTM_DELROUTE of the local table's default, RTM_DELADDR of the address.
route, address = bytes([2, 0, 0, 0, 255, 0, 254, 2, 0, 0, 0, 0]), bytes([2, 32, 0, 0, 1, 0, 0, 0])
for kind, body in ((25, route), (21, address)):
    netlink.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
    print(struct.unpack_from("i", netlink.recv(4096), 16)[0])
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(321, 14, None, 0), ctypes.get_errno())
print(libc.syscall(438, os.pidfd_open(1), 8, 0), ctypes.get_errno())
try:
    print(os.readlink("/proc/1/fd/8"))
except OSError as error:
    print(error.errno)
"""
    said = (await bare(served, path, "python3", "-c", program)).split("\n")
    assert said[:2] == ["-1", "-1"]
    assert said[2] in ("-1 1", "-1 38")
    assert said[3:] == ["-1 1", "13"]


async def test_connections_that_nobody_serves_cost_the_host_no_more_than_its_limit(
    served: Served, path: str
) -> None:
    await allow(served, path, "example.com:6500")
    program = """
import socket, sys
address = socket.gethostbyname("example.com")
held = []
for _ in range(400):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((address, 6500))
    held.append(one)
print("held", flush=True)
sys.stdin.read()
"""
    outlet = served.platform.access.egress.outlets.outlet(path.rpartition("/")[2])
    assert outlet is not None
    async with greeting(6500):
        argv = ["timeout", "20", "python3", "-c", program]
        begun = await served.client.post(f"{path}/processes", {"argv": argv, "has_stdin": True})
        assert begun.status_code == 201, begun.text
        await eventually(lambda: len(outlet.flows) == 64)
        ended = await served.client.delete(f"{path}/processes/{begun.json()['process_id']}/stdin")
        assert ended.status_code == 204, ended.text
        await eventually(lambda: not outlet.flows)
        assert await talk(served, path, "example.com", 6500, "x") == "welcome"


async def test_it_is_there_again_after_stop_and_resume(served: Served) -> None:
    path = await served.sandbox(network="allow:example.com:6600")
    async with greeting(6600):
        for verb in ("stop", "resume"):
            assert (await served.client.post(f"{path}/{verb}", {})).status_code == 200
        assert await talk(served, path, "example.com", 6600, "x") == "welcome"

"""A worker that somebody took over could do what its request needed and no more: Landlock."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command
from tests.support.guest import GUEST, Box, eventually


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fence") / "probe"
    sources = [Path(__file__).parent / "fence_probe.c", GUEST / "supervisor" / "fence.c"]
    words = ["-D_GNU_SOURCE", "-include", "stdlib.h", f"-I{GUEST / 'supervisor'}"]
    subprocess.run(["gcc", "-Wall", "-Werror", *words, *sources, "-o", made], check=True)
    return made


# s stat, r read, l list, w write, c create, d folder, m move, u remove, D device, x run, t TCP, k signal
@pytest.mark.parametrize(
    ("kind", "can"), [("none", "srlwcdmuDxtk"), ("read", "srl"), ("write", "srlwcdmu"), ("carry", "s")]
)
def test_behind_its_fence_a_worker_can_do_what_its_request_needs(
    probe: Path, tmp_path: Path, kind: str, can: str
) -> None:
    (tmp_path / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        said = subprocess.run([probe, kind, tmp_path, port], check=True, capture_output=True, text=True)
    fenced, took_us, found = (*said.stdout.split(), "")[:3]
    if kind != "none" and fenced == "0":
        pytest.skip("this kernel has no Landlock, or one that forbids moves")
    print(f"\n{kind}: {took_us} us")
    # Without TCP and signals in older versions of Landlock: never more than without a fence.
    missing = set(can) - set(found)
    assert not missing - {"D"}, f"{missing} is forbidden too"
    assert set(found) - set(can) <= {"t", "k"}, f"{found} is possible"


async def test_a_relay_behind_its_fence_carries_on_when_one_direction_breaks(box: Box) -> None:
    """The server inside stops listening to us and still answers: what it says must come."""
    script = (
        "import socket,time\n"
        "s=socket.socket(socket.AF_UNIX); s.bind('/mnt/socket'); s.listen(); c,_=s.accept()\n"
        "c.recv(1); c.shutdown(socket.SHUT_RD); time.sleep(0.3)\n"
        "c.sendall(b'z'*300000); c.shutdown(socket.SHUT_WR); time.sleep(5)"
    )
    async with await box.guest.run(Command(argv=["python3", "-c", script])), asyncio.timeout(20):

        async def is_up() -> bool:
            return (box.root / "socket").exists()

        await eventually(is_up)
        connection = await box.guest.connect_socket("/mnt/socket")
        await connection.write(b"a" * 400_000)
        received = 0
        while piece := await connection.read():
            received += len(piece)
        await connection.close()
    assert received == 300_000

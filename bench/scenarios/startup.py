"""What it costs before anything happens: importing the client, one command, and a server without payments.

CPU time of whole processes, user and system, each beside an interpreter that imports the libraries it cannot
do without. `list` is a whole call: it asks a platform (`bench/doors.py`) and prints the table.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.measurements import Bar, Row, Samples
from bench.scenarios.signed import doors

LIBRARIES = "import httpx, pydantic"
# What a platform that takes no payments has loaded when it serves, PostgreSQL and SSH aside. A database that
# is there already needs no Alembic.
LIBRARIES_OF_A_PLATFORM = (
    "import cryptography.x509, fastapi, httptools, httpx, prometheus_client, pydantic, rich.console,"
    " rich.table, sqlalchemy, typer, uvicorn, uvloop, websockets, yaml"
)
CLIENT = "from sandboxer.sdk import Sandboxer"
SERVER = "from sandboxer.edges.cli.main import load; load('up'); import sandboxer.edges.http.server"
LIST = "import sys; sys.argv = ['sandboxer', 'list']; from sandboxer.edges.cli import main; main()"
BAR = Bar(text="≤ 1.5 × its libraries alone", limit=1.5)


def startup(folder: Path, rounds: int) -> Iterator[Row | Samples]:
    state_dir = folder / "startup"
    state_dir.mkdir()
    with doors(state_dir) as (port, _):
        asked = {
            "SANDBOXER_URL": f"http://127.0.0.1:{port}",
            "SANDBOXER_CREDENTIALS": str(state_dir / "owner.json"),
        }
        yield _compare("import of the client", CLIENT, LIBRARIES, rounds, asked)
        yield _compare("`sandboxer list`, the whole call", LIST, LIBRARIES, rounds, asked)
    few = max(3, rounds // 5)
    yield _compare("import of a server without payments", SERVER, LIBRARIES_OF_A_PLATFORM, few, {})
    yield start(folder / "start", few)


def start(state_dir: Path, rounds: int) -> Row:
    """`up` until it serves, on a storage pool that an earlier start has made."""
    _up_cpu_ms(state_dir)
    pairs = [(_up_cpu_ms(state_dir), _cpu_ms(LIBRARIES_OF_A_PLATFORM, {})) for _ in range(rounds)]
    return Row(
        figure="`sandboxer up` until it serves, without payments",
        subject=Samples("ours", "ms", tuple(mine for mine, _ in pairs)),
        baseline=Samples("libraries alone", "ms", tuple(other for _, other in pairs)),
        bar=BAR,
        note="CPU time of the process; the pool is there already",
    )


def _up_cpu_ms(state_dir: Path) -> float:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"{folder}/notify")
        heard.settimeout(120)
        own = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        own |= {"NOTIFY_SOCKET": f"{folder}/notify", "SANDBOXER_PORT": "0", "SANDBOXER_POOL_SIZE_MB": "1024"}
        words = [sys.executable, "-m", "sandboxer.edges.cli.main", "up", "--state-dir", str(state_dir)]
        with subprocess.Popen(words, env=own, stdout=subprocess.DEVNULL) as server:
            try:
                heard.recv(65536)
                times = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            finally:
                server.terminate()
    subprocess.run(["umount", str(state_dir / "pool")], check=False, capture_output=True)
    return sum(int(each) for each in times) * 1000 / os.sysconf("SC_CLK_TCK")


def _compare(figure: str, ours: str, theirs: str, rounds: int, more: Mapping[str, str]) -> Row:
    for program in (ours, theirs):
        _cpu_ms(program, more)  # the first time compiles
    pairs = [(_cpu_ms(ours, more), _cpu_ms(theirs, more)) for _ in range(rounds)]
    subject = Samples("ours", "ms", tuple(mine for mine, _ in pairs))
    baseline = Samples("libraries alone", "ms", tuple(other for _, other in pairs))
    return Row(figure=figure, subject=subject, baseline=baseline, bar=BAR, note="CPU time of the process")


def _cpu_ms(program: str, more: Mapping[str, str]) -> float:
    words = [sys.executable, "-c", program]
    environment = {**os.environ, **more}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    _, status, used = os.wait4(os.posix_spawn(words[0], words, environment, file_actions=quiet), 0)
    if status != 0:
        raise RuntimeError(f"`{program}` ended with {os.waitstatus_to_exitcode(status)}")
    return (used.ru_utime + used.ru_stime) * 1000

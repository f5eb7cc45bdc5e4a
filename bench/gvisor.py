"""`python -m bench.gvisor RUNSC`: gVisor through our API beside a bare `runsc run`, and beside namespaces.

One platform has both backends. Every round does each thing once, in turn: a create until its first output,
cold and from the warm pool; the whole of `runsc run` of the same program on the same image; and an exec in a
sandbox of each kind that runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.client import Wire
from bench.measurements import Bar, Report, Row
from bench.platform import open_platform, own_folder
from bench.report import machine_facts, print_table
from bench.scenarios.life import ECHO, Measured, timed
from sandboxer.settings import PROFILES as SHIPPED

IMAGES = Path("/var/lib/sandboxer/images")
WARM_UP = 2
EXECS = 5
# Kinds differ in what they may use, so that the cold one never gets a spare of the warm one's.
PROFILES = {"cold": ("ext.oci", 1.5), "warm": ("ext.oci", 2), "near": ("ext.namespaces", 1.5)}


class BareRunsc:
    """`runsc run` of one echo, with `lo` alone, as its own documentation starts a container."""

    def __init__(self, program: str, folder: Path, image: Path) -> None:
        self._program = program
        self._bundle = folder / "bare"
        self._bundle.mkdir()
        self._number = 0
        described = {
            "ociVersion": "1.0.2",
            "process": {
                "args": ["/bin/echo", "hi"],
                "cwd": "/",
                "env": ["PATH=/usr/bin:/bin"],
                "user": {"uid": 0, "gid": 0},
                "noNewPrivileges": True,
            },
            "root": {"path": str(image), "readonly": True},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
        }
        (self._bundle / "config.json").write_text(json.dumps(described))

    def life_ms(self) -> float:
        self._number += 1
        words = [self._program, "--root", str(self._bundle / "state"), "--network=sandbox", "--overlay2=none"]
        words += ["--ignore-cgroups", "--platform=systrap", "run", "--bundle", str(self._bundle)]
        start = time.perf_counter()
        done = subprocess.run([*words, f"bare{self._number}"], capture_output=True, check=True)
        took = (time.perf_counter() - start) * 1000
        if done.stdout != b"hi\n":
            raise RuntimeError(f"runsc said {done.stdout!r}")
        return took


def first_output(wire: Wire, measured: Measured, name: str, profile: str) -> str:
    start = time.perf_counter()
    made = wire.ask("POST", "/v1/sandboxes", {"profile": f"profile.{profile}"}).json()
    said = wire.ask("POST", f"/v1/sandboxes/{made['id']}/exec", ECHO).json()
    if said["stdout"] != "hi\n":
        raise RuntimeError(f"the sandbox said {said!r}")
    measured.add(name, (time.perf_counter() - start) * 1000)
    return str(made["id"])


def wait_for_spare(wire: Wire) -> None:
    deadline = time.monotonic() + 60
    while not all(one["ready"] for one in wire.ask("GET", "/v1/pools").json()["warm"]):
        if time.monotonic() > deadline:
            raise RuntimeError("the warm pool did not fill")
        time.sleep(0.05)


def one_round(wire: Wire, measured: Measured, bare: BareRunsc, running: dict[str, str]) -> None:
    measured.add("bare `runsc run`", bare.life_ms())
    cold = first_output(wire, measured, "gVisor, create to first output", "cold")
    wire.ask("DELETE", f"/v1/sandboxes/{cold}")
    wait_for_spare(wire)
    warm = first_output(wire, measured, "gVisor, warm", "warm")
    wire.ask("DELETE", f"/v1/sandboxes/{warm}")
    for _ in range(EXECS):
        for name, target in running.items():
            measured.add(name, timed(partial(ask_exec, wire, target))[0])


def ask_exec(wire: Wire, target: str) -> None:
    wire.ask("POST", target, ECHO).json()


def rows(measured: Measured) -> Iterator[Row]:
    bare = measured.samples("bare `runsc run`")
    yield Row(
        figure="gVisor, create to first output",
        subject=measured.samples("gVisor, create to first output"),
        baseline=bare,
        bar=Bar(text="≤ 1.2 × bare `runsc run`", limit=1.2),
    )
    yield Row(
        figure="gVisor with a warm pool, create to first output",
        subject=measured.samples("gVisor, warm"),
        baseline=None,
        bar=Bar(text="≤ 25 ms", limit=25.0),
    )
    yield Row(
        figure="exec in gVisor",
        subject=measured.samples("exec in gVisor"),
        baseline=measured.samples("exec in namespaces"),
        bar=Bar(text="≤ 2 × exec in namespaces", limit=2.0),
    )


@contextmanager
def both_backends(folder: Path, runsc: str) -> Iterator[Wire]:
    profiles = folder / "profiles"
    profiles.mkdir()
    agents = (SHIPPED / "agent-dev.yaml").read_text()
    for name, (backend, vcpus) in PROFILES.items():
        text = agents.replace("profile.agent-dev", f"profile.{name}").replace("ext.namespaces", backend)
        text = text.replace(" uid_range,", "").replace("{vcpus: 1,", f"{{vcpus: {vcpus},")
        (profiles / f"{name}.yaml").write_text(text)
    settings = {
        "backends": "ext.namespaces,ext.oci",
        "oci_runtime": runsc,
        "profiles_dir": str(profiles),
        "default_profile": "profile.near",
        "warm_pool": '{"profile.warm": 1}',
    }
    state = folder / "state"
    state.mkdir()
    with open_platform(state, IMAGES, settings=settings, pool_mb=2048) as platform:
        wire = platform.wire()
        yield wire
        wire.close()


def measure(runsc: str, rounds: int) -> Report:
    measured, began = Measured(), datetime.now(UTC).isoformat(timespec="seconds")
    with own_folder() as folder, both_backends(folder, runsc) as wire:
        bare = BareRunsc(runsc, folder, IMAGES / "base" / "rootfs")
        running = {}
        for name, profile in (("exec in gVisor", "cold"), ("exec in namespaces", "near")):
            made = first_output(wire, measured, "to begin with", profile)
            running[name] = f"/v1/sandboxes/{made}/exec"
        for number in range(rounds + WARM_UP):
            one_round(wire, measured, bare, running)
            if number == WARM_UP - 1:
                measured.clear()
    return Report(machine=machine_facts(), started_at=began, rows=list(rows(measured)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runsc", help="what scripts/build-runsc prints")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    report = measure(words.runsc, words.rounds)
    print_table(report, Console(highlight=False))
    if words.json:
        print(json.dumps(report.as_json(), indent=1))
    return 0 if report.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""A session of 100 MB behind gVisor: kept by our API, against `runsc checkpoint` of the same sandbox in the
same rounds; and how long until it goes on, in a copy and in itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running
from bench.scenarios.life import Measured, timed
from sandboxer.kernel.program import PROFILES

MB = 100
PROFILE = "profile.strong"
HELD = {"profile": PROFILE, "resources": {"vcpus": 1, "memory_mb": 512, "disk_mb": 128}}
SESSION = (
    f"import os, time; held = os.urandom({MB} << 20); open('/root/ready', 'w').close(); time.sleep(1 << 20)"
)
BEGIN = f'nohup python3 -c "{SESSION}" >/dev/null 2>&1 & while ! test -e /root/ready; do sleep 0.05; done'
FIGURE = f"snapshot with the memory of a session of {MB} MB"


def runtime() -> str | None:
    """The runsc of this platform's settings, or the one in the PATH."""
    return shutil.which(os.environ.get("SANDBOXER_OCI_RUNTIME", "runsc"))


def settings(folder: Path) -> dict[str, str]:
    """A platform with a profile whose sandboxes gVisor starts."""
    profiles = folder / "profiles"
    shutil.copytree(PROFILES, profiles)
    text = (PROFILES / "agent-dev.yaml").read_text().replace("id: profile.agent-dev", f"id: {PROFILE}")
    text = text.replace("backend: ext.namespaces", "backend: ext.oci")
    (profiles / "strong.yaml").write_text(text.replace("uid_range, ", "").replace(", pids]", "]"))
    found = {"profiles_dir": str(profiles), "oci_runtime": runtime() or "runsc"}
    return {**found, "backends": "ext.namespaces,ext.oci"}


def memory(running: Running, rounds: int) -> Iterator[Row | Samples]:
    wire, measured = running.wire(), Measured()
    sandbox_id = wire.ask("POST", "/v1/sandboxes", HELD).json()["id"]
    target = f"/v1/sandboxes/{sandbox_id}"
    wire.ask("POST", f"{target}/exec", {"argv": ["sh", "-c", BEGIN]}).json()
    for number in range(rounds + 1):
        if number == 1:
            measured.clear()
        _one_round(running, wire, measured, sandbox_id)
    wire.ask("DELETE", target).json()
    wire.close()
    bar = Bar(text="≤ 1.5 × runsc checkpoint", limit=1.5)
    yield Row(
        figure=FIGURE, subject=measured.samples("snapshot"), baseline=measured.samples("runsc"), bar=bar
    )
    for name in ("clone that goes on", "restore that goes on", "stop with memory", "resume"):
        yield measured.samples(name)


def _one_round(running: Running, wire: Wire, measured: Measured, sandbox_id: str) -> None:
    target = f"/v1/sandboxes/{sandbox_id}"
    measured.add("runsc", timed(lambda: _checkpoint(running, sandbox_id))[0])
    took, made = timed(lambda: wire.ask("POST", f"{target}/snapshots", {"memory": True}).json())
    measured.add("snapshot", took)
    where = f"/v1/snapshots/{made['id']}"
    took, clones = timed(lambda: wire.ask("POST", f"{where}/clone", {}).json())
    measured.add("clone that goes on", took)
    wire.ask("DELETE", f"/v1/sandboxes/{clones['sandboxes'][0]['id']}").json()
    measured.add("restore that goes on", timed(lambda: wire.ask("POST", f"{where}/restore").json())[0])
    wire.ask("DELETE", where).json()
    measured.add("stop with memory", timed(lambda: wire.ask("POST", f"{target}/stop?memory=true").json())[0])
    measured.add("resume", timed(lambda: wire.ask("POST", f"{target}/resume").json())[0])


def _checkpoint(running: Running, sandbox_id: str) -> None:
    """What our backend asks for, by itself: the same disk is written to, and the sandbox goes on."""
    place = running.state_dir / "oci" / "bare-checkpoint"
    bundle = running.state_dir / "oci" / "run" / sandbox_id / "oci"
    words = [runtime() or "runsc", "--root", str(bundle / "state"), "checkpoint", "--leave-running"]
    place.mkdir()
    try:
        subprocess.run(
            [*words, "--compression=none", "--image-path", str(place), sandbox_id],
            check=True,
            capture_output=True,
        )
    finally:
        shutil.rmtree(place)


def missing() -> Skipped | None:
    return None if runtime() else Skipped(FIGURE, "there is no runsc: SANDBOXER_OCI_RUNTIME names none")

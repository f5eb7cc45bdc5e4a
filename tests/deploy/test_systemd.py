"""The installer on a Debian that systemd runs: the unit serves, sandboxes outlive it, and all goes again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.debian import ROOT, build_wheel, make_debian
from tests.support.platforms import free_port, why_not_real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]
# What a machine has and a container gets only on request: limits that can be set, and loop devices.
PREPARE = """
for folder in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,rw "$folder" || true; done
for i in $(seq 0 255); do [ -e /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done
"""
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"
CALLS = "@raw-io @keyring @swap bpf userfaultfd open_by_handle_at perf_event_open"


class Machine:
    """A Debian that has booted; its commands are units of its systemd."""

    def __init__(self, root: Path, init: str) -> None:
        self.root = root
        self._enter = ["nsenter", "-t", init, "-a", "systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
        self._enter += [f"-pEnvironment={PATH} HOME=/root {CERTIFICATES}", "--", "sh", "-c"]

    def ask(self, script: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._enter, script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900
        )
        print(script, done.returncode, done.stdout, done.stderr)
        return done

    def __call__(self, script: str) -> str:
        done = self.ask(script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def has(self, *paths: str) -> list[bool]:
        return [os.path.lexists(self.root / path) for path in paths]


@contextmanager
def booted(root: Path) -> Iterator[Machine]:
    command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--notify-ready=yes", "--console=pipe"]
    command += [f"--directory={root}", "--machine=sandboxer-test", "--resolv-conf=off", "--capability=all"]
    command += [f"--system-call-filter={CALLS}", "--bind=/dev/loop-control"]
    # Without systemd on this machine nobody can give it a scope of its own.
    command += [] if os.path.isdir("/run/systemd/system") else ["--keep-unit"]
    told = root.parent / "told"
    how = {"NOTIFY_SOCKET": str(told), "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"}
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        how["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "0"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(told))
        heard.settimeout(120)
        process = subprocess.Popen(command, env=os.environ | how, stdin=subprocess.DEVNULL)
        try:
            words: dict[str, str] = {}
            while words.get("READY") != "1":
                said = heard.recv(65536).decode()
                words |= dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
            yield Machine(root, words["X_NSPAWN_LEADER_PID"])
        finally:
            # Once asks it to shut down, twice ends it.
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if (why := why_not_real()) is not None:
        pytest.skip(why)
    if missing := [one for one in ("mmdebstrap", "systemd-nspawn") if shutil.which(one) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed: scripts/system-packages ci")
    root = tmp_path_factory.mktemp("machine") / "root"
    make_debian(root, "systemd", "systemd-sysv", "dbus", "sudo")
    shutil.copy(ROOT / "deploy" / "install.sh", root)
    shutil.copy(build_wheel(tmp_path_factory.mktemp("wheel")), root)
    settings = root / "etc" / "sandboxer"
    settings.mkdir()
    (settings / "env").write_text(f"SANDBOXER_PORT={free_port()}\n")
    try:
        with booted(root) as running:
            running(PREPARE)
            yield running
    finally:
        shutil.rmtree(root, ignore_errors=True)


INSTALL = "sh /install.sh --yes --from /sandboxer-*.whl"
PROGRAM = ("opt/sandboxer", "usr/local/bin/sandboxer", "etc/systemd/system/sandboxer.service")
DATA = ("var/lib/sandboxer", "etc/sandboxer")


def test_a_machine_of_systemd_is_installed_used_upgraded_and_left(machine: Machine) -> None:
    installed(machine)
    outlived(machine, "systemctl restart sandboxer")
    shared(machine)
    before = os.readlink(machine.root / "opt/sandboxer/venv")
    outlived(machine, INSTALL)
    assert os.readlink(machine.root / "opt/sandboxer/venv") != before
    removed(machine)


def installed(machine: Machine) -> None:
    lines = machine(f"{INSTALL} --image /base.tar").splitlines()
    address = machine("sandboxer status --json >/dev/null; . /etc/sandboxer/env; echo $SANDBOXER_PORT")
    assert f"● sandboxer serves at http://127.0.0.1:{address}" in lines
    assert machine("systemctl is-active sandboxer; systemctl is-enabled sandboxer") == "active\nenabled"
    machine("sandboxer create --name here")
    machine("sandboxer exec here -- sh -c 'echo kept >/kept; sleep 7777 >/dev/null 2>&1 &'")


def outlived(machine: Machine, command: str) -> None:
    machine(command)
    assert machine("systemctl is-active sandboxer") == "active"
    asked = "cat /kept; pgrep -x sleep >/dev/null && echo runs"
    assert machine(f"sandboxer exec here -- sh -c '{asked}'") == "kept\nruns"


def shared(machine: Machine) -> None:
    machine("groupadd --system sandboxer && useradd -m -G sandboxer anna && useradd -m bob")
    machine("echo SANDBOXER_SOCKET_GROUP=sandboxer >>/etc/sandboxer/env && systemctl restart sandboxer")
    machine("sudo -u anna sandboxer create --name hers")
    assert machine("sudo -u anna sandboxer exec hers -- echo hers") == "hers"
    assert "here" not in machine("sudo -u anna sandboxer list --json")
    assert machine.ask("sudo -u bob sandboxer list").returncode == 3


def removed(machine: Machine) -> None:
    machine("sandboxer uninstall --yes")
    assert machine.has(*PROGRAM, *DATA) == [False] * 3 + [True] * 2
    # It finds what it left, sandboxes that ran on among them.
    outlived(machine, INSTALL)
    machine("sandboxer uninstall --purge --yes")
    assert machine.has(*PROGRAM, *DATA) == [False] * 5
    assert machine("pgrep -x 'supervisor|launcher|sandboxer' || echo none") == "none"
    assert machine("grep -c sandboxer /proc/mounts || true") == "0"

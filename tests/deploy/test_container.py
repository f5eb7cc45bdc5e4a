"""`deploy/Containerfile` in a real engine: it builds, serves, and finds what it kept when started again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.artifacts.engines import Podman
from tests.deploy.debian import ROOT, build_wheel, make_debian
from tests.support.platforms import free_port, why_not_real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
# No registry is asked: this is what it would have sent.
BASE = "docker.io/library/debian:bookworm-slim"
# As the head of the file says.
FLAGS = ("--privileged", "--cgroupns=host", "--network=host", "-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw")
VOLUME = ("-v", "sandboxer:/var/lib/sandboxer:shared")


class Engine:
    """Podman with a store of its own, in mounts of its own: they outlive each call, as on other hosts."""

    def __init__(self, folder: Path, keeper: int) -> None:
        self._words = ["nsenter", "-t", str(keeper), "-m", "podman", "--cgroup-manager=cgroupfs"]
        # Podman takes no path of more than 50 characters there, and those of test workers are longer.
        run = tempfile.mkdtemp(prefix="run-")
        self._words += ["--root", str(folder / "store"), "--runroot", run]

    def __call__(self, *words: str, cwd: Path | None = None) -> str:
        command = [*self._words, *words]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=900)
        print(words, done.returncode, done.stdout, done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if (why := why_not_real()) is not None:
        pytest.skip(why)
    if missing := [one for one in ("mmdebstrap", "podman", "crun") if shutil.which(one) is None]:
        pytest.skip(f"{', '.join(missing)} is not installed: scripts/system-packages ci")
    folder = tmp_path_factory.mktemp("engine")
    # crun refuses cgroup v1 and v2 at once.
    hiding = "umount -l /sys/fs/cgroup/unified 2>/dev/null; echo; exec sleep infinity"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", hiding], stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        try:
            made = Engine(folder, keeper.pid)
            yield made
            made("rm", "--all", "--force", "--volumes", "--time", "10")
            made("rmi", "--all", "--force")
        finally:
            # Whatever failed: who leaves the block waits for it.
            keeper.kill()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("debian") / "root"
    make_debian(made)
    yield made
    shutil.rmtree(made)


def test_the_recipe_builds_serves_and_keeps(engine: Engine, root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "debian.tar"
    subprocess.run(["tar", "-c", "-f", archive, "--exclude=./base.tar", "-C", root, "."], check=True)
    engine("import", "--quiet", str(archive), BASE)
    archive.unlink()
    build_wheel(tmp_path / "dist")
    recipe = str(ROOT / "deploy" / "Containerfile")
    # The authorities of this host's way out, for pip alone.
    (tmp_path / "pip.conf").write_text("[global]\ncert = /authorities\n")
    reaching = [
        "-v",
        "/etc/ssl/certs/ca-certificates.crt:/authorities:ro",
        "-v",
        f"{tmp_path}/pip.conf:/etc/pip.conf:ro",
    ]
    engine(
        "build", "--network=host", *Podman.LIMITS, *reaching, "-t", "sandboxer", "-f", recipe, str(tmp_path)
    )
    loading = ("--rm", "--network=none", "-v", f"{root}:/from:ro")
    load = ("localhost/sandboxer", "sandboxer", "image", "load", "/from/base.tar")
    engine("run", *Podman.LIMITS, *VOLUME, *loading, *load)
    port = f"SANDBOXER_PORT={free_port()}"
    engine("run", "-d", "--name=platform", *FLAGS, *VOLUME, *Podman.LIMITS, "-e", port, "localhost/sandboxer")
    served(engine)
    engine("exec", "platform", "sandboxer", "create", "--name", "here")
    assert inside(engine, "echo kept >/kept; echo it runs") == "it runs"
    engine("restart", "--time", "40", "platform")
    served(engine)
    engine("exec", "platform", "sandboxer", "resume", "here")
    assert inside(engine, "cat /kept") == "kept"
    engine("exec", "platform", "sandboxer", "delete", "here")


def served(engine: Engine) -> None:
    """The platform writes its lock when it begins and answers when it serves."""
    waiting = "until sandboxer status >/dev/null 2>&1; do sleep 0.5; done"
    engine("exec", "platform", "timeout", "180", "sh", "-c", waiting)


def inside(engine: Engine, script: str) -> str:
    return engine("exec", "platform", "sandboxer", "exec", "here", "--", "sh", "-c", script)

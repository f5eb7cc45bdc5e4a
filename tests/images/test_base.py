"""The base image holds what an agent reaches for first, and nothing a shared tree must not hold."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from sandboxer.artifacts.images import Image, find_image
from sandboxer.kernel.errors import NotFound
from sandboxer.settings import Settings

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def base() -> Image:
    if os.geteuid() != 0 or shutil.which("bwrap") is None:
        pytest.skip("needs root and bubblewrap")
    try:
        return find_image("base", Settings().images_dir)
    except NotFound as absent:
        pytest.skip(str(absent))


def inside(image: Image, script: str) -> str:
    walls = ["bwrap", "--ro-bind", image.rootfs, "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all"]
    walls += [
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/root",
        "--tmpfs",
        "/workspace",
        "--die-with-parent",
        "--clearenv",
    ]
    walls += ["--setenv", "PATH", PATH, "--setenv", "HOME", "/root", "--setenv", "LANG", "C.UTF-8"]
    done = subprocess.run([*walls, "/bin/bash", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python3 -c 'import ssl, sqlite3, ctypes, lzma, bz2, curses; print(6 * 7)'", "42"),
        ("python3 -m venv /tmp/v && /tmp/v/bin/pip --version", "pip "),
        ("pip --version", "pip "),
        ("echo 'console.log(6 * 7)' >/tmp/a.js && node /tmp/a.js", "42"),
        ("echo 'int main(){return 0;}' >/tmp/a.c && gcc /tmp/a.c -o /tmp/a && /tmp/a && echo ran", "ran"),
        ("printf 'all:\\n\\t@echo made\\n' >/tmp/Makefile && make -s -C /tmp", "made"),
        ("cd /workspace && git init -q && git branch --show-current", "main"),
        ("curl --version", "curl "),
        ("echo '{\"a\": 1}' | jq .a", "1"),
        ("ps -o comm= -p 1", "b"),
        ("sudo -E -- id -u", "0"),
        ("id -u user", "1000"),
        ("python3 -c 'print(\"ü\")'", "ü"),
        ("apt-get -s install jq", "jq is already the newest version"),
        ("dpkg --audit; echo sound", "sound"),
        ("getent hosts localhost", "localhost"),
    ],
)
def test_what_an_agent_needs_is_there(base: Image, script: str, expected: str) -> None:
    assert expected in inside(base, script)


def test_pip_may_install_into_the_system_python(base: Image) -> None:
    assert not list(base.rootfs.glob("usr/lib/python3*/EXTERNALLY-MANAGED"))


def test_nothing_special_is_in_the_tree(base: Image) -> None:
    wrong = []
    for folder, names, files in os.walk(base.rootfs):
        for name in (*names, *files):
            facts = os.lstat(os.path.join(folder, name))
            kind = stat.S_IFMT(facts.st_mode)
            setuid = kind == stat.S_IFREG and facts.st_mode & (stat.S_ISUID | stat.S_ISGID)
            special = kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            if special or setuid or max(facts.st_uid, facts.st_gid) > 65535:
                wrong.append(os.path.join(folder, name))
    assert wrong == []


def test_the_tree_says_nothing_about_the_host_it_was_built_on(base: Image) -> None:
    etc = base.rootfs / "etc"
    assert etc.joinpath("hostname").read_text().strip() == "sandbox"
    assert "nameserver" not in etc.joinpath("resolv.conf").read_text()
    assert etc.joinpath("machine-id").read_text() == ""
    uris = [line.split()[1] for line in etc.joinpath("apt/sources.list").read_text().splitlines()]
    assert uris
    assert all("@" not in uri for uri in uris)
    assert list(etc.glob("apt/apt.conf.d/99mmdebstrap")) == []


def test_the_record_tells_what_is_in_it(base: Image) -> None:
    assert base.packages["python3"]
    assert base.size_bytes < 1_000_000_000
    assert Path(base.folder).stat().st_mode & 0o777 == 0o755

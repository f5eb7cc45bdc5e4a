"""The client is light: it needs none of the platform's libraries, none of its packages, and no POSIX
module.
"""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import sys

POSIX = {"fcntl", "termios", "tty", "pwd", "grp", "resource", "pty"}
LIBRARIES = set(
    "alembic asyncssh backports bip322 coincurve Cryptodome cryptography embit eth_account fastapi httptools"
    " jsonschema prometheus_client psycopg pyseto sqlalchemy starlette uvicorn uvloop web3 x402 yaml".split()
)
PACKAGES = {
    f"sandboxer.{name}"
    for name in "access accounts artifacts backends identity money observe payments sandboxes settings store"
    " wiring work edges.front edges.http edges.proxy edges.ssh".split()
}


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in POSIX | LIBRARIES | PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
for name in POSIX:
    sys.modules.pop(name, None)
"""
EVERY_MODULE = """
import importlib, pkgutil
ADAPTERS = tuple(
    "sandboxer.sdk.adapters." + name
    for name in "crewai inspect jupyter langchain openai_agents pydantic_ai smolagents swerex".split()
)
import sandboxer.sdk, sandboxer.wire
from sandboxer.sdk import AsyncSandboxer, Sandboxer
for package in (sandboxer.sdk, sandboxer.wire):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        # A wallet, the extra `payer`; and what is for other people's programs, each an extra of its own.
        if found.name == "sandboxer.sdk.payers" or found.name.startswith(ADAPTERS):
            continue
        importlib.import_module(found.name)
"""
EVERY_VERB = """
from sandboxer.edges.cli.main import VERBS, load
for name, verb in VERBS.items():
    if not verb.is_of_server:
        load(name)
"""
EVERY_VERB_OF_THE_SERVER = """
PACKAGES.clear()  # they come with the client; their libraries do not
from sandboxer.edges.cli.main import run
from sandboxer.edges.cli.main import VERBS
for name, verb in VERBS.items():
    if verb.is_of_server and run([name, "--help"]) != 0:
        print("told:", name)
"""


def run_blocked(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, timeout=100
    )


def test_the_client_imports_where_the_platform_and_posix_are_missing() -> None:
    done = run_blocked(EVERY_MODULE)
    assert done.returncode == 0, done.stderr


def test_every_verb_of_the_client_loads_where_the_platform_and_posix_are_missing() -> None:
    done = run_blocked(EVERY_VERB)
    assert done.returncode == 0, done.stderr


def test_a_verb_of_the_server_says_which_command_brings_what_it_needs() -> None:
    done = run_blocked(EVERY_VERB_OF_THE_SERVER)
    assert done.returncode == 0, done.stderr
    text = [line.removeprefix("told: ") for line in done.stdout.splitlines() if line.startswith("told: ")]
    assert {"up", "doctor", "backup", "restore", "adopt-pool"} <= set(text)
    words = " ".join(done.stderr.split())
    assert words.count("error: ") == len(text)
    assert words.count("pip install 'sandboxer[server]'") + words.count("Run it on Linux.") == len(text), (
        words
    )

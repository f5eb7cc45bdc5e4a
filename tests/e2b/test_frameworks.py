"""Other people's clients of E2B, unmodified, each installed in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from testchains.stacks.simnet import why_not
from tests.support.e2b import node_with, python_with

pytestmark = pytest.mark.slow

COMPUTESDK = """
import { e2b } from '@computesdk/e2b'
const provider = e2b({})
const sandbox = await provider.sandbox.create({ timeout: 120000 })
const seen = {}
try {
  const done = await sandbox.runCommand('printenv A && pwd', { env: { A: 'on' }, cwd: '/tmp' })
  seen.ran = [done.stdout, done.exitCode]
  seen.failed = (await sandbox.runCommand('exit 3')).exitCode
  await sandbox.filesystem.writeFile('/home/user/a/b', 'text')
  seen.read = await sandbox.filesystem.readFile('/home/user/a/b')
  seen.names = (await sandbox.filesystem.readdir('/home/user/a')).map((one) => one.name)
  seen.listed = (await provider.sandbox.list()).some((one) => one.sandboxId === sandbox.sandboxId)
} finally {
  await provider.sandbox.destroy(sandbox.sandboxId)
}
console.log(JSON.stringify(seen))
process.exit(0)
"""

SMOLAGENTS = """
import json
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import E2BExecutor
executor = E2BExecutor([], AgentLogger(level=0), timeout=120)
executor.send_variables({"given": [1, 2]})
first = executor("print('said'); sum(given)")
executor.send_tools({})
seen = [str(first.output), first.logs.strip(), executor("given").output]
executor.cleanup()
print(json.dumps(seen))
"""

LANGCHAIN = """
import json
from e2b import Sandbox
from langchain_e2b import E2BSandbox
with Sandbox.create(timeout=120) as sandbox:
    backend = E2BSandbox(sandbox=sandbox)
    backend.write("/home/user/notes.txt", "one\\ntwo\\n")
    backend.edit("/home/user/notes.txt", "two", "three")
    seen = [
        backend.execute("cat notes.txt").output,
        backend.execute("exit 3").exit_code,
        [one["path"] for one in backend.grep("three", "/home/user").matches],
    ]
print(json.dumps(seen))
"""


def heard(command: list[str]) -> object:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def test_computesdk(real_key: str) -> None:
    if why := why_not():
        pytest.skip(why)
    program = node_with("@computesdk/e2b@1.7.52") / "drive.mjs"
    program.write_text(COMPUTESDK)
    assert heard(["node", str(program)]) == {
        "ran": ["on\n/tmp\n", 0],
        "failed": 3,
        "read": "text",
        "names": ["b"],
        "listed": True,
    }


def test_smolagents(real_key: str, tmp_path: Path) -> None:
    python = python_with("smolagents[e2b]==1.26.0", "e2b-code-interpreter==2.11.5")
    (tmp_path / "drive.py").write_text(SMOLAGENTS)
    assert heard([python, str(tmp_path / "drive.py")]) == ["3", "said", [1, 2]]


def test_langchain(real_key: str, tmp_path: Path) -> None:
    python = python_with("langchain-e2b==0.0.6", "e2b==2.63.0")
    (tmp_path / "drive.py").write_text(LANGCHAIN)
    assert heard([python, str(tmp_path / "drive.py")]) == ["one\nthree\n", 3, ["/home/user/notes.txt"]]

"""`make test-unsandbox`: the checks of unsandbox's public clients against a platform of ours.

The clients have their address built in, and run unchanged: in a namespace of their own its names lead here,
with certificates of the platform's own authority (`tests/support/borrowed_names.py`). They are fetched into a
folder outside of this tree, at one commit; `SUITE=/path` is a repository to take them from instead.

What every check came to is written to build/unsandbox.json. One that failed or was left out counts against
us, unless outside.yaml names it and the thing outside of this machine that it lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandboxer.wire.unsandbox import API_HOST, PORTAL_HOST
from tests.support import foreign
from tests.support.borrowed_names import BorrowedNames
from tests.support.caddy import why_no_caddy
from tests.support.e2b import tls_platform
from tests.support.foreign import Result, brief, judged, of_pytest
from tests.support.platforms import ROOT, free_port, why_not_real
from tests.support.unsandbox import Key, new_key

ADDRESS = "https://github.com/russellballestrini/un-inception"
COMMIT = "a9f1d628890712e0ed0a9909758f53f8dfe0ecd0"
RESULTS = ROOT / "build" / "unsandbox.json"
OUTSIDE = Path(__file__).with_name("outside.yaml")
WALK = Path(__file__).with_name("walk.sh")
WORK = Path("/var/tmp/sandboxer-unsandbox")
PATIENCE_S = 600
PYTEST = ("pytest", "pytest-asyncio", "requests", "aiohttp")
# `✓ …`, `[PASS] …` and `PASS: …`, whatever colours are around them.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"^\s*(?:(✓)|(✗)|(⊘)|\[?(PASS|FAIL|SKIP)\]?:?)\s+(.+)$")
_OUTCOMES = {
    "✓": "passed",
    "PASS": "passed",
    "✗": "failed",
    "FAIL": "failed",
    "⊘": "skipped",
    "SKIP": "skipped",
}
Read = Callable[[Path, subprocess.CompletedProcess[str]], Iterator[Result]]


def _of_report(folder: Path, done: subprocess.CompletedProcess[str]) -> Iterator[Result]:
    yield from of_pytest(folder / "report.xml")


def _of_jest(folder: Path, done: subprocess.CompletedProcess[str]) -> Iterator[Result]:
    outcomes = {"passed": "passed", "failed": "failed"}
    for file in json.loads((folder / "report.json").read_text())["testResults"]:
        where = os.path.relpath(file["name"], folder)
        if not file["assertionResults"]:
            yield Result(where, "failed", brief(file.get("message", "")))
        for case in file["assertionResults"]:
            why = brief(" ".join(case["failureMessages"]))
            yield Result(f"{where}::{case['fullName']}", outcomes.get(case["status"], "skipped"), why)


def _of_go(folder: Path, done: subprocess.CompletedProcess[str]) -> Iterator[Result]:
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        event = json.loads(line) if line.startswith("{") else {"Action": "output", "Output": line}
        test = event.get("Test", "")
        if event["Action"] == "output":
            said[test] = said.get(test, "") + event.get("Output", "")
        elif test and event["Action"] in ("pass", "fail", "skip"):
            outcome = {"pass": "passed", "fail": "failed", "skip": "skipped"}[event["Action"]]
            yield Result(test, outcome, brief(said.get(test, "")))
        elif not test and event["Action"] == "fail":
            yield Result("the package", "failed", brief(said.get("", "") + done.stderr))


def _of_lines(folder: Path, done: subprocess.CompletedProcess[str]) -> Iterator[Result]:
    shown = _COLOUR.sub("", done.stdout)
    for line in shown.splitlines():
        if found := _LINE.match(line):
            word = next(one for one in found.groups()[:4] if one)
            yield Result(found[5], _OUTCOMES[word], "" if word in ("✓", "PASS") else brief(shown[-2000:]))
    if done.returncode:
        yield Result("its end", "failed", brief(shown[-1000:] + done.stderr[-1000:]))


def _install_python(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    subprocess.run([folder / ".venv/bin/pip", "install", "-q", *PYTEST], check=True)


def _install_node(folder: Path) -> None:
    quiet = ("--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error")
    subprocess.run(["npm", "ci", *quiet], cwd=folder, check=True)


_MAIN = """package main

import un "github.com/russellballestrini/un-inception/clients/go/sync/src"

func main() { un.CliMain() }
"""


def _gather_go(folder: Path) -> None:
    """Puts checks beside the package that they check, as the clients' own Makefile does, and builds its
    command, as its documents say: a program that calls `CliMain`, which is not in the repository.
    """
    for file in (folder / "tests").glob("*_test.go"):
        shutil.copy(file, folder / "src")
    program = folder / "src" / "command"
    program.mkdir()
    (program / "main.go").write_text(_MAIN)
    words = ["go", "build", "-p", "1", "-o", "../un", "./command"]
    subprocess.run(words, cwd=folder / "src", env=os.environ | {"GOTOOLCHAIN": "local"}, check=True)


def _scatter_go(folder: Path) -> None:
    """Takes away the copies of checks that lie beside a package of another name; Go builds no such folder."""
    for file in (folder / "src").glob("*_test.go"):
        file.unlink()


def _nothing(folder: Path) -> None:
    """Needs no preparation."""


@dataclass(frozen=True)
class Suite:
    name: str
    # Of the client, in the repository.
    folder: str
    words: tuple[str, ...]
    read: Read
    prepare: Callable[[Path], None] = _nothing
    # Where it is run, below its folder.
    inside: str = "."


_PYTEST = (
    ".venv/bin/python",
    "-m",
    "pytest",
    "tests",
    "-q",
    "-p",
    "no:cacheprovider",
    "--junitxml=report.xml",
)
# Its health check never reads the answer, which keeps Node until the connection has idled for minutes.
_JEST = ("npm", "test", "--", "--json", "--outputFile=report.json", "--forceExit")
_GO = ("go", "test", "-json", "-p", "1", "-count=1")
_FLAG = ("bash", "tests/test_account_flag.sh")
SUITES = (
    Suite("python", "clients/python/sync", _PYTEST, _of_report, _install_python),
    Suite("python-async", "clients/python/async", _PYTEST, _of_report, _install_python),
    Suite("python-accounts", "clients/python/sync", _FLAG, _of_lines, _install_python),
    Suite("javascript", "clients/javascript/sync", _JEST, _of_jest, _install_node),
    Suite("javascript-async", "clients/javascript/async", _JEST, _of_jest, _install_node),
    Suite(
        "javascript-functional",
        "clients/javascript/sync",
        ("node", "tests/test_functional.mjs"),
        _of_lines,
        _install_node,
    ),
    Suite("javascript-accounts", "clients/javascript/sync", _FLAG, _of_lines, _install_node),
    Suite("go", "clients/go/sync", (*_GO, "."), _of_go, _gather_go, inside="src"),
    Suite("go-async", "clients/go/async", (*_GO, "./tests"), _of_go, _scatter_go),
    Suite("go-accounts", "clients/go/sync", _FLAG, _of_lines, _gather_go),
    Suite("shell", "clients/bash", ("bash", "tests/test_library.sh"), _of_lines),
    # They have no check that asks a platform: ours does, with the client as it is.
    Suite("shell-walk", "clients/bash", ("bash", str(WALK)), _of_lines),
)


def main(words: Sequence[str]) -> int:
    asked = _parser().parse_args(words)
    if why := why_not_real() or why_no_caddy():
        sys.exit(why)
    outside: Mapping[str, Mapping[str, str]] = yaml.safe_load(OUTSIDE.read_text()) or {}
    if why := _fetch(asked.suite, asked.work / "clients"):
        return _left_out(why, outside["fetch"])
    seen: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="unsandbox-", dir=asked.work) as folder:
        settings = {"SANDBOXER_UNSANDBOX_NAMES": "true"}
        port = free_port()
        with tls_platform(Path(folder) / "state", settings=settings, port=port) as edge:
            names = BorrowedNames(Path(folder) / "names", (API_HOST, PORTAL_HOST), edge.authority, port)
            try:
                for suite in SUITES:
                    if not asked.only or suite.name in asked.only:
                        found = _run(suite, names, new_key(edge.up, suite.name), asked.work)
                        seen[suite.name] = [judged(one, outside.get(suite.name, {})) for one in found]
                        foreign.write(seen, RESULTS)
            finally:
                names.close()
    return foreign.report(seen, OUTSIDE, RESULTS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-unsandbox", description=__doc__)
    parser.add_argument("suite", nargs="?", default=ADDRESS, help="repository of the clients")
    parser.add_argument("--only", action="append", choices=[suite.name for suite in SUITES])
    parser.add_argument("--work", type=Path, default=WORK, help="kept between runs")
    return parser


def _fetch(address: str, folder: Path) -> str | None:
    """Fetches the clients, once. Returns why that cannot be; None if they are there."""
    if (folder / "complete").exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for words in (
        ["clone", "-q", "--no-checkout", address, str(folder)],
        ["-C", str(folder), "checkout", "-q", COMMIT],
    ):
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            return brief(done.stderr)
    (folder / "complete").touch()
    return None


def _left_out(why: str, reviewed: Mapping[str, str]) -> int:
    """Tells why there are no clients. Only a reviewed reason is none of ours."""
    lacks = next((lacks for said, lacks in reviewed.items() if said in why), None)
    print(f"the clients of unsandbox cannot be fetched: {why}")
    if lacks is None:
        return 1
    print(f"left out, because this machine lacks {lacks}; SUITE=/path/to/a/clone runs them from there")
    return 0


def _run(suite: Suite, names: BorrowedNames, key: Key, work: Path) -> list[Result]:
    folder = _copied(suite, work)
    shutil.rmtree(names.home, ignore_errors=True)
    names.home.mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SANDBOXER_", "UN"))}
    environment = {
        **plain,
        **names.environment,
        "PATH": f"{folder / '.venv/bin'}:{plain['PATH']}",
        "PYTHONPATH": "src",
        "GOCACHE": str(work / "go"),
        "GOTOOLCHAIN": "local",
        "UNSANDBOX_PUBLIC_KEY": key.public,
        "UNSANDBOX_SECRET_KEY": key.secret,
    }
    done = subprocess.run(
        names.command(suite.words, folder / suite.inside),
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    (folder / "output").write_text(done.stdout + done.stderr)
    found = list(suite.read(folder, done))
    return found or [Result("anything", "failed", brief(done.stdout[-1000:] + done.stderr[-1000:]))]


def _copied(suite: Suite, work: Path) -> Path:
    """Returns a copy of a client with what its checks need installed, made once."""
    folder = work / suite.folder.replace("/", "-").removeprefix("clients-")
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(work / "clients" / suite.folder, folder)
        suite.prepare(folder)
        (folder / "complete").touch()
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

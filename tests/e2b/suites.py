"""`make test-e2b SUITE="…"`: E2B's own live suites against a platform of ours, by a domain and a key alone.

A suite is a checkout of their repository: of the SDKs, of the code interpreter, or both. It is copied, and
nothing of it is kept here. What every test came to is written to build/e2b.json. A test that failed or was
skipped counts against us, unless outside.yaml names it and the thing outside of this machine that it lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandboxer.edges.e2b.answers import INTERPRETER
from tests.support import foreign
from tests.support.e2b import Names, Tls, tls_platform
from tests.support.foreign import Result, judged, of_pytest
from tests.support.internet import Internet
from tests.support.platforms import IMAGES, ROOT, why_not_real

RESULTS = ROOT / "build" / "e2b.json"
OUTSIDE = Path(__file__).with_name("outside.yaml")
POOL_MB = 12_288
# Whoever runs them may build, and a build leaves room for sandboxes.
BUILDS = {
    "SANDBOXER_IMAGE_MAKERS": "everyone",
    "SANDBOXER_BUILD_DISK_MB": "4096",
    "SANDBOXER_BUILD_CACHE_MB": "2048",
}
PYTEST = ("pytest", "pytest-asyncio", "pytest-xdist", "pytest-timeout", "pytest-dotenv", "python-dotenv")
# What their tests in node have no use for: browsers, other runtimes, what generates and checks their source.
UNUSED = ("@cloudflare/vitest-pool-workers", "@redocly/cli", "@typescript/native", "knip", "wrangler")
DOMAIN = "sandboxes.test"
HTTPBIN = r"""
from e2b import Template
served = r'''
end=$(printf '\r')
read -r line
while read -r line && line=${line%$end} && [ "$line" ]; do
    seen="$seen${seen:+,}\"${line%%: *}\":[\"${line#*: }\"]"
done
seen="{\"headers\":{$seen}}"
printf 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#seen} "$seen"
'''
made = Template().from_image("ubuntu:22.04").run_cmd(f"cat > httpbin <<'END'{served}END")
made = made.set_start_cmd("nc -ll -p 8080 -e sh /home/user/httpbin", "netstat -ltn | grep -q :8080")
Template.build(made, "httpbin", cpu_count=1, memory_mb=512)
"""


@dataclass(frozen=True)
class Suite:
    name: str
    # Of its package, in the checkout.
    folder: str
    # Words of its runner: which tests it is.
    tests: tuple[str, ...]

    @property
    def is_python(self) -> bool:
        return not self.folder.endswith(("js", "js-sdk"))


SUITES = (
    Suite("python-sync", "packages/python-sdk", ("tests/sync",)),
    Suite("python-async", "packages/python-sdk", ("tests/async",)),
    Suite(
        "js", "packages/js-sdk", tuple(f"--project={one}" for one in ("unit", "template", "connectionConfig"))
    ),
    Suite("code-interpreter-python", "python", ("tests",)),
    Suite("code-interpreter-js", "js", ()),
)


def main(words: Sequence[str]) -> int:
    asked = _parser().parse_args(words)
    if why := why_not_real():
        sys.exit(why)
    wants_code = any(suite.name.startswith("code") for suite, _ in _wanted(asked))
    if wants_code and not (IMAGES / INTERPRETER).exists():
        sys.exit(f"no {INTERPRETER} in {IMAGES}: sudo sandboxer image build {INTERPRETER}")
    outside: Mapping[str, Mapping[str, str]] = yaml.safe_load(OUTSIDE.read_text()) or {}
    seen: dict[str, list[Result]] = {}
    work = asked.work
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="e2b-", dir=work) as folder:
        names = Names(Path(folder))
        internet = Internet(Path(folder) / "internet", {f".{DOMAIN}": 443})
        chosen = {**BUILDS, **internet.settings, "SANDBOXER_IMAGES_DIR": str(asked.images)}
        with tls_platform(
            Path(folder) / "state",
            pool_mb=POOL_MB,
            settings=chosen,
            program=Internet.__module__,
            domain=DOMAIN,
            port=_usual_port(),
        ) as edge:
            internet.trust(edge.authority)
            _build_httpbin(asked, names, edge)
            for suite, checkout in _wanted(asked):
                found = _run(suite, _copied(checkout, suite, work), names, edge, asked)
                excuses = outside.get(suite.name, {})
                seen[suite.name] = [judged(one, excuses) for one in found]
                foreign.write(seen, RESULTS)
        internet.close()
        names.close()
    return foreign.report(seen, OUTSIDE, RESULTS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-e2b", description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--only", action="append", choices=[suite.name for suite in SUITES])
    parser.add_argument("--match", help="only tests whose name has this")
    parser.add_argument("--path", action="append", default=[], help="only tests of this file or folder")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/sandboxer-e2b"), help="kept between runs")
    return parser


def _wanted(asked: argparse.Namespace) -> Iterator[tuple[Suite, Path]]:
    for suite in SUITES:
        if asked.only and suite.name not in asked.only:
            continue
        for checkout in asked.checkouts:
            if (checkout / suite.folder / "tests").is_dir():
                yield suite, checkout


def _usual_port() -> int | None:
    """Returns 443, where headers are put into requests to a sandbox; None if somebody else has it."""
    try:
        socket.create_server(("", 443)).close()
    except OSError:
        return None
    return 443


def _build_httpbin(asked: argparse.Namespace, names: Names, edge: Tls) -> None:
    """Builds the template that shows callers their headers: the account of E2B's own tests has one."""
    for suite, checkout in _wanted(asked):
        if not suite.name.startswith("code"):
            python = _copied(checkout, SUITES[0], asked.work) / ".venv/bin/python"
            words = names.command([str(python), "-c", HTTPBIN])
            subprocess.run(words, env=edge.environment, check=True, stdin=subprocess.DEVNULL)
            return


def _copied(checkout: Path, suite: Suite, work: Path) -> Path:
    """Returns a copy of a package with what its tests need installed, made once."""
    kind = "code" if suite.name.startswith("code") else "sdk"
    folder = work / f"{kind}-{'python' if suite.is_python else 'js'}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(
            checkout / suite.folder, folder, ignore=shutil.ignore_patterns("node_modules", ".env")
        )
        (_install_python if suite.is_python else _install_node)(folder)
        (folder / "complete").touch()
    return folder


def _install_python(folder: Path) -> None:
    wanted = [str(folder), *PYTEST]
    lock = folder / "poetry.lock"
    if lock.exists():
        # The code interpreter's tests go with the SDK of their time.
        packages = tomllib.loads(lock.read_text())["package"]
        wanted += [f"e2b=={one['version']}" for one in packages if one["name"] == "e2b"]
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    subprocess.run([folder / ".venv/bin/pip", "install", "-q", *wanted], check=True)


def _install_node(folder: Path) -> None:
    package = json.loads((folder / "package.json").read_text())
    for name in UNUSED:
        package["devDependencies"].pop(name, None)
    (folder / "package.json").write_text(json.dumps(package))
    quiet = ("--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error", "--legacy-peer-deps")
    subprocess.run(["npm", "install", *quiet], cwd=folder, check=True)


def _run(suite: Suite, folder: Path, names: Names, edge: Tls, asked: argparse.Namespace) -> list[Result]:
    report = folder / "report"
    report.unlink(missing_ok=True)
    if suite.is_python:
        words = [str(folder / ".venv/bin/python"), "-m", "pytest", *(asked.path or suite.tests)]
        words += ["-q", "--tb=short"]
        words += ["-p", "no:cacheprovider", "-n", asked.workers, f"--junitxml={report}"]
        words += ["-k", asked.match] if asked.match else []
    else:
        words = ["npx", "vitest", "run", *suite.tests, *asked.path, "--reporter=default", "--reporter=json"]
        words += [f"--outputFile.json={report}", f"--maxWorkers={asked.workers}"]
        words += ["-t", asked.match] if asked.match else []
    environment = {**edge.environment, "HOME": str(folder)}
    subprocess.run(names.command(words), cwd=folder, env=environment, check=False, stdin=subprocess.DEVNULL)
    return [*(of_pytest(report) if suite.is_python else _of_vitest(report, folder))]


def _of_vitest(report: Path, folder: Path) -> Iterator[Result]:
    outcomes = {"passed": "passed", "failed": "failed"}
    for file in json.loads(report.read_text())["testResults"]:
        where = os.path.relpath(file["name"], folder)
        if not file["assertionResults"]:
            yield Result(where, "failed", foreign.brief(file.get("message", "")))
        for case in file["assertionResults"]:
            why = foreign.brief(" ".join(case["failureMessages"]))
            yield Result(f"{where}::{case['fullName']}", outcomes.get(case["status"], "skipped"), why)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

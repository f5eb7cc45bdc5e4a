"""The TypeScript client as it is published: packed, installed into a project, run by Node, Bun and Deno."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.e2b import node_with
from tests.support.languages import TYPESCRIPT, install, run
from tests.support.platforms import Up

pytestmark = pytest.mark.slow
BUN, DENO = "1.4.4", "2.9.6"
PROGRAM = """
import { Sandbox, Sandboxer, type models } from "sandboxer";
const sandbox: Sandbox = await Sandbox.create({ ttl: "10m" });
const done: models.ExecResult = await sandbox.run("echo from a project");
console.log(done.stdout.trim());
let text = "";
for await (const piece of sandbox.stream("echo streamed")) {
  if (piece.kind === "stdout") text += new TextDecoder().decode(piece.data);
}
console.log(text.trim());
await sandbox.destroy();
console.log((await new Sandboxer().discover()).url);
"""
# Where there is neither environment nor file, as in a browser.
BARE = """
delete globalThis.process;
const { Sandboxer, findCredentials } = await import("sandboxer");
try { findCredentials({}); } catch (error) { console.log(error.code); }
const client = new Sandboxer({ url: URL_OF_IT, apiKey: KEY });
const sandbox = await client.create({ ttl: "10m" });
console.log((await sandbox.run("echo with a token")).stdout.trim());
await sandbox.destroy();
"""
TSCONFIG = {
    "compilerOptions": {
        "target": "es2022",
        "module": "nodenext",
        "lib": ["es2023", "dom"],
        "strict": True,
        "types": [],
    },
    "files": ["program.ts"],
}


@pytest.fixture(scope="module")
def project(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project with the package in it and nothing else, and a program that was checked."""
    folder = tmp_path_factory.mktemp("project")
    plain = dict(os.environ)
    install(package, folder)
    (folder / "program.ts").write_text(PROGRAM)
    (folder / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    run([str(TYPESCRIPT / "node_modules" / ".bin" / "tsc"), "-p", "."], folder, plain)
    return folder


def _says_what_it_should(said: str, up: Up) -> None:
    assert said.split("\n")[:3] == ["from a project", "streamed", up.url]


def test_it_needs_nothing_but_itself(project: Path) -> None:
    assert [path.name for path in (project / "node_modules").iterdir() if path.is_dir()] == ["sandboxer"]
    packed = project / "node_modules" / "sandboxer"
    assert {path.name for path in packed.iterdir()} == {"README.md", "dist", "package.json"}
    assert (packed / "dist" / "LICENSE").is_file()
    for file in (packed / "dist").rglob("*.js"):
        foreign = set(re.findall(r'(?:from|import) "([^".][^"]*)"', file.read_text()))
        assert foreign <= ({"ai"} if file.name == "ai.js" else set()), file.name


def test_a_program_that_was_checked_against_its_types_runs_in_node(project: Path, up: Up) -> None:
    _says_what_it_should(run(["node", "program.js"], project, up.environment), up)


def test_it_runs_where_there_is_neither_environment_nor_file(project: Path, up: Up) -> None:
    public_key = json.loads(up.owner_file.read_text())["public_key"]
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        token = client.keys.issue_bearer(public_key).bearer_token
    program = BARE.replace("URL_OF_IT", json.dumps(up.url)).replace("KEY }", f"{json.dumps(token)} }}")
    (project / "bare.js").write_text(program)
    said = run(["node", "bare.js"], project, {"PATH": os.environ["PATH"]})
    assert said.split("\n")[:2] == ["missing_credentials", "with a token"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="which Bun and Deno to take is written for x86-64")
@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (f"@oven/bun-linux-x64-baseline@{BUN}", ["bin/bun", "run"]),
        (f"@deno/linux-x64-glibc@{DENO}", ["deno", "run", "--allow-all"]),
    ],
    ids=["bun", "deno"],
)
def test_the_same_program_runs_in_bun_and_deno_as_it_is_written(
    project: Path, up: Up, runtime: str, words: list[str]
) -> None:
    name = runtime.rpartition("@")[0]
    program = node_with(runtime) / "node_modules" / name / words[0]
    program.chmod(0o755)
    _says_what_it_should(run([str(program), *words[1:], "program.ts"], project, up.environment), up)

"""Frameworks of agents, each the real one, through the whole loop: find out, pay, make, run, keep, destroy.

The model is scripted (`tests.support.scripted_model`); the platform, its walls, chain and wallet are not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testchains.evm import Anvil
from tests.support import framework_programs as programs
from tests.support.agent_payers import payments, walls
from tests.support.chains.evm import evm  # noqa: F401
from tests.support.frameworks import python_beside
from tests.support.http.served import Served
from tests.support.http.x402 import settings_with
from tests.support.platforms import Up
from tests.support.scripted_model import Script, Step, scripted_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SATS = 1_000
PLAN = (
    Step("discover", {}),
    Step("topUp", {"sats": SATS}),
    Step("createSandbox", {"ttl": "10m", "resources": {"disk_mb": 128}}),
    Step("runCommand", {"sandbox_id": "$createSandbox.id", "command": "echo $((6 * 7)) | tee /workspace/a"}),
    Step("createSnapshot", {"sandbox_id": "$createSandbox.id", "name": "kept"}),
    Step("readFile", {"sandbox_id": "$createSandbox.id", "path": "/nowhere"}),
    Step("destroySandbox", {"sandbox_id": "$createSandbox.id"}),
)


class Framework(NamedTuple):
    """How one of them is installed, and what its user writes."""

    packages: tuple[str, ...]
    program: str
    end: Step | str = "all is done"
    is_plain: bool = False


FRAMEWORKS = {
    "langchain": Framework(
        ("langchain==1.4.7", "langchain-core==1.7.2", "langchain-openai==1.7.3"), programs.LANGCHAIN
    ),
    "openai-agents": Framework(("openai-agents==0.24.0",), programs.OPENAI_AGENTS),
    "pydantic-ai": Framework(("pydantic-ai-slim[openai]==2.66.0",), programs.PYDANTIC_AI),
    "smolagents": Framework(
        ("smolagents[openai]==1.26.0",),
        programs.SMOLAGENTS,
        end=Step("final_answer", {"answer": "all is done"}),
    ),
    "crewai": Framework(("crewai==1.15.30",), programs.CREWAI),
    "a manifest": Framework((), programs.MANIFEST, is_plain=True),
}


# As Python that a `CodeAgent` writes calls a tool: with names, without, or with too much.
CALLED = """
from sandboxer.sdk.adapters.smolagents import sandbox_tools
from sandboxer.sdk.tools import ToolResult

class Told:
    tools = property(lambda self: self)
    run = staticmethod(lambda name, given: ToolResult(f"{name} {given}"))

run, write = sandbox_tools(Told(), ["runCommand", "writeFile"])
print(run("dev", "echo hi"))
print(write("dev", "/a", "text", mode=420))
print(write("dev", "/a", "text"))
print(run(*range(99)))
print(write.to_code_prompt().split(")")[0])
"""


@pytest.fixture
async def sold(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    async with walls(tmp_path, settings_with(evm, tmp_path)) as served:
        yield served


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_a_framework_goes_through_the_whole_loop(
    name: str,
    sold: Served,
    evm: Anvil,
    tmp_path: Path,
) -> None:
    framework, script = FRAMEWORKS[name], Script(PLAN, FRAMEWORKS[name].end, FRAMEWORKS[name].is_plain)
    python = await asyncio.to_thread(python_beside, *framework.packages, of=("payer",))
    (tmp_path / "drive.py").write_text(programs.BEGIN + framework.program)
    with scripted_model(script) as model:
        facts = {
            **{"url": sold.url, "model": model, "network": evm.network, "asset": evm.asset},
            **{"wallet": evm.new_wallet(5_000_000), "tools": list(dict.fromkeys(step.tool for step in PLAN))},
        }
        said = await driven(python, tmp_path, facts)
    assert said.strip().endswith("all is done")
    # What was refused reached the model in words; everything else as JSON.
    (problem,) = script.problems
    assert problem.startswith("readFile")
    assert "No such file or directory in the sandbox: /nowhere" in problem
    # It offered what it was given, and no more than its own way to end.
    assert script.is_plain or script.offered - {"final_answer"} == {step.tool for step in PLAN}
    answers = script.answers
    assert (answers["runCommand"]["exit_code"], answers["runCommand"]["stdout"]) == (0, "42\n")
    assert (answers["createSnapshot"]["sandbox_id"], answers["destroySandbox"]["state"]) == (
        answers["createSandbox"]["id"],
        "destroyed",
    )
    assert [one["sats"] for one in await payments(sold)] == [SATS]
    # What signs is no business of a model.
    assert "kept by the client" in answers["topUp"]["key"]["secret_key"]


async def test_words_without_a_name_are_taken_in_the_order_that_is_shown(tmp_path: Path) -> None:
    packages = FRAMEWORKS["smolagents"].packages
    python = await asyncio.to_thread(python_beside, *packages, of=("payer",))
    (tmp_path / "drive.py").write_text(CALLED)
    said = (await driven(python, tmp_path, {"url": ""})).splitlines()
    assert said[:3] == [
        "runCommand {'sandbox_id': 'dev', 'command': 'echo hi'}",
        "writeFile {'sandbox_id': 'dev', 'path': '/a', 'content': 'text', 'mode': 420}",
        "writeFile {'sandbox_id': 'dev', 'path': '/a', 'content': 'text'}",
    ]
    assert said[3] == "runCommand takes 8 arguments at most. Call it again."
    assert said[4].startswith("def writeFile(sandbox_id: string, path: string, content: string, ")


async def driven(python: str, folder: Path, facts: dict[str, object]) -> str:
    """Runs the program beside the platform, and returns what it printed."""
    environment = Up(str(facts["url"]), folder).environment | {"FACTS": json.dumps(facts)}
    environment.pop("SANDBOXER_CREDENTIALS")
    process = await asyncio.create_subprocess_exec(
        *(python, str(folder / "drive.py")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    async with asyncio.timeout(240):
        out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()[-8000:]
    return out.decode()

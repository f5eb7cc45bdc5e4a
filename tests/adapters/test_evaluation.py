"""Evaluation harnesses and notebooks, each the real one, with sandboxes of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.frameworks import driven, python_beside
from tests.support.platforms import Up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("nothing_left")]

INSPECT = ("inspect-ai==0.3.285", "pytest==8.4.2", "pytest-asyncio==1.2.0")
# Of the platform's own package nothing is named: Inspect finds it by its entry point.
SELF_CHECK = """
import pytest
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *

@pytest.fixture
async def sandbox_env():
    environment = registry_find_sandboxenv("sandboxer")
    made = await environment.sample_init("self-check", None, {})
    yield made["default"]
    await environment.sample_cleanup("self-check", None, made, False)
"""
EVALUATION = """
import json
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash

said = [
    ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt; id -un"}),
    ModelOutput.from_content("mockllm/model", "The file says forty-two."),
]
for one in said:
    one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it fetches a tokenizer
task = Task(
    dataset=[Sample(input="Read it", target="forty-two", files={"given.txt": "forty-two\\n"})],
    solver=[use_tools(bash(timeout=30)), generate()],
    scorer=includes(),
    sandbox="sandboxer",
)
log = eval(task, model=get_model("mockllm/model", custom_outputs=said), display="none", log_dir="logs")[0]
tools = [m.text for m in log.samples[0].messages if m.role == "tool"]
print(json.dumps([log.status, tools, log.results.scores[0].metrics["accuracy"].value]))
"""
# As `--sandbox sandboxer:box.yaml` and a sample's own configuration arrive.
CONFIGURED = """
import asyncio, json, pathlib
from inspect_ai.util import ComposeConfig, ComposeService
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

async def main():
    provider, seen = registry_find_sandboxenv("sandboxer"), []
    pathlib.Path("box.yaml").write_text("env: {FROM: a file}\\nworkdir: /tmp\\n")
    pathlib.Path("wrong.yaml").write_text("networks: none\\n")
    compose = ComposeConfig(services={"default": ComposeService(image="x")})
    for config in "box.yaml", "wrong.yaml", "nowhere.yaml", compose:
        try:
            made = await provider.sample_init("of a file", config, {})
        except Exception as error:
            seen.append(type(error).__name__)
            continue
        seen.append((await made["default"].exec(["sh", "-c", "echo $FROM $PWD"])).stdout)
        await provider.sample_cleanup("of a file", config, made, False)
    print(json.dumps(seen))

asyncio.run(main())
"""
SWEREX = """
import asyncio, json, pathlib
from sandboxer.sdk.adapters.swerex import SandboxerDeployment
from swerex.exceptions import NonZeroExitCodeError
from swerex.runtime.abstract import *

async def main():
    deployment = SandboxerDeployment(resources={"disk_mb": 900})
    await deployment.start()
    seen = []
    try:
        run = lambda words, **more: deployment.runtime.run_in_session(BashAction(command=words, **more))
        seen.append(bool(await deployment.is_alive(timeout=5)))
        await deployment.runtime.create_session(CreateBashSessionRequest())
        await run("export A=kept; cd /tmp")
        seen.append((await run("echo $A $PWD")).output.strip())
        try:
            await run("false")
        except NonZeroExitCodeError:
            seen.append("failed as it should")
        await run("python3 -q", is_interactive_command=True, expect=[">>> "])
        seen.append((await run("6*7", is_interactive_command=True, expect=[">>> "])).output)
        pathlib.Path("sent").mkdir()
        pathlib.Path("sent/a").write_text("as it was")
        await deployment.runtime.upload(UploadRequest(source_path="sent", target_path="/tmp/got"))
        seen.append((await deployment.runtime.read_file(ReadFileRequest(path="/tmp/got/a"))).content)
    finally:
        await deployment.stop()
    print("\\n" + json.dumps(seen))

asyncio.run(main())
"""
# As a sandbox that has replaced SWE-ReX's server would answer.
LYING = """
import asyncio, json, pathlib
from aiohttp import web
from sandboxer.sdk.adapters.swerex import Runtime
from swerex.exceptions import SessionDoesNotExistError
from swerex.runtime.abstract import *

async def main():
    named = ["os.system", "builtins.exec", "builtins.open", "swerex.exceptions.SessionDoesNotExistError"]
    async def answer(request):
        said = {"class_path": named[0], "message": "touch taken"}
        return web.json_response({"swerexception": said}, status=511)
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    seen = []
    runtime = Runtime(host="http://127.0.0.1", port=runner.addresses[0][1], auth_token="t", timeout=1.0)
    while named:
        try:
            await runtime.execute(Command(command="true"))
        except Exception as error:
            seen.append(type(error).__name__)
        named.pop(0)
    seen.append(pathlib.Path("taken").exists())
    print(json.dumps(seen))
    await runner.cleanup()

asyncio.run(main())
"""
JUPYTER = """
import json, subprocess, sys, threading
subprocess.run([sys.executable, "-m", "sandboxer.sdk.adapters.jupyter"], check=True)
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="sandboxer-python3", startup_timeout=120)
def run(code):
    said = []
    def keep(message):
        content = message["content"]
        said.append(content.get("text") or content.get("data", {}).get("text/plain") or content.get("ename"))
    client.execute_interactive(code, timeout=60, output_hook=keep)
    return [one for one in said if one]
try:
    run("import os, socket, time; x = 42; open('/workspace/kept', 'w').write('file')")
    seen = [run("x"), run("socket.gethostname()[:4]")]
    threading.Timer(1, manager.interrupt_kernel).start()
    seen.append(run("time.sleep(60)"))
    manager.restart_kernel(now=True)
    client.wait_for_ready(60)
    seen += [run("x"), run("open('/workspace/kept').read()")]
finally:
    client.stop_channels()
    manager.shutdown_kernel()
print(json.dumps([*seen, manager.is_alive()]))
"""


def last(said: str) -> object:
    return json.loads([line for line in said.splitlines() if line.startswith("[")][-1])


def test_inspects_own_checks_of_a_provider(up: Up, tmp_path: Path) -> None:
    words = ("-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider")
    said = driven(python_beside(*INSPECT), SELF_CHECK, up, tmp_path, *words)
    assert "44 passed" in said
    assert "skipped" not in said
    assert "xfailed" not in said


def test_an_evaluation_of_inspect(up: Up, tmp_path: Path) -> None:
    said = driven(python_beside(*INSPECT), EVALUATION, up, tmp_path)
    assert last(said) == ["success", ["forty-two\nuser\n"], 1.0]


def test_a_configuration_of_inspect_is_kept_or_refused(up: Up, tmp_path: Path) -> None:
    said = driven(python_beside(*INSPECT), CONFIGURED, up, tmp_path)
    assert last(said) == ["a file /tmp\n", "ValidationError", "FileNotFoundError", "TypeError"]


def test_swe_rex(up: Up, tmp_path: Path) -> None:
    said = driven(python_beside("swe-rex==1.4.0", "aiohttp==3.14.2"), SWEREX, up, tmp_path)
    assert last(said) == [True, "kept /tmp", "failed as it should", "42", "as it was"]


def test_swe_rex_calls_nothing_that_a_sandbox_names(up: Up, tmp_path: Path) -> None:
    said = driven(python_beside("swe-rex==1.4.0", "aiohttp==3.14.2"), LYING, up, tmp_path)
    assert last(said) == ["SwerexException"] * 3 + ["SessionDoesNotExistError", False]


def test_a_notebooks_kernel(up: Up, tmp_path: Path) -> None:
    said = driven(python_beside("jupyter-client==8.10.0", "ipython==9.9.0"), JUPYTER, up, tmp_path)
    assert last(said) == [["42"], ["'sbx-'"], ["KeyboardInterrupt"], ["NameError"], ["'file'"], False]

"""Flow 7 of the paper, session management: state persists over cells, and over freezing, for who pays for it.

Its tools are createSession, executeInSession, freezeSession and unfreezeSession, beside list, get, boost and
end: every one over HTTP, against real sandboxes, in every language that keeps a session.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import pytest

from tests.support.flows import Charging
from tests.support.http.flows import flow
from tests.support.http.real import IMAGES, real  # noqa: F401
from tests.support.http.served import Served
from tests.support.http.signed import Client

SMALL = {"resources": {"disk_mb": 128}}
# What sets x, what prints it, and what fails.
IN_BASE = {
    "python": ("x = 42", "print(x)", "1/0"),
    "javascript": ("let x = 42", "console.log(x)", "null.nothing"),
    "perl": ("my $x = 42;", 'print "$x\\n";', "die 'oops';"),
    "bash": ("x=42", "echo $x", "false"),
    "sh": ("x=42", "echo $x", "false"),
    "dash": ("x=42", "echo $x", "false"),
}
IN_LANGUAGES = {
    "ruby": ("x = 42", "puts x", "raise 'oops'"),
    "php": ("$x = 42;", 'echo "$x\\n";', "throw new Exception('oops');"),
    "lua": ("x = 42", "print(x)", "error('oops')"),
    "luajit": ("x = 42", "print(x)", "error('oops')"),
    "r": ("x <- 42", 'cat(x, "\\n", sep = "")', "stop('oops')"),
    "zsh": ("x=42", "echo $x", "false"),
    "ksh": ("x=42", "echo $x", "false"),
    "mksh": ("x=42", "echo $x", "false"),
    "yash": ("x=42", "echo $x", "false"),
    "ash": ("x=42", "echo $x", "false"),
    "fish": ("set x 42", "echo $x", "false"),
    "tcsh": ("set x = 42", "echo $x", "false"),
    "csh": ("set x = 42", "echo $x", "false"),
    "elvish": ("var x = 42", "echo $x", "fail oops"),
    "xonsh": ("x = 42", "print(x)", "1/0"),
}
PLOT = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3]); plt.title("three")
"""


class Session:
    def __init__(self, agent: Client, path: str, sandbox_id: str) -> None:
        self.agent, self.path, self.sandbox_id = agent, path, sandbox_id

    async def run(self, code: str, **more: object) -> dict[str, Any]:
        answer = await self.agent.post(f"{self.path}/cells", {"code": code, **more})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def do(self, verb: str, body: object = None) -> dict[str, Any]:
        answer = await self.agent.post(f"{self.path}/{verb}", body)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result


async def begin(agent: Client, language: str, **more: object) -> Session:
    answer = await agent.post("/v1/sessions", {"language": language, **(more or SMALL)})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    return Session(agent, f"/v1/sessions/{made['id']}", made["sandbox_id"])


async def funded(served: Served) -> Client:
    agent = await served.stranger("agent")
    credit = {"sats": 10**6, "id": "flow-7", "reason": "what flow 3 paid for"}
    assert (await served.client.post("/v1/accounts/agent/adjust", credit)).status_code < 300
    return agent


@flow("startSession", "runCell", "freezeSession", "thawSession", "boostSession", "endSession")
async def test_an_agent_keeps_its_state_over_cells_and_over_freezing(real: Served) -> None:
    agent = await funded(real)
    session = await begin(agent, "python3", trust="zero", **SMALL)
    assert (await session.run("x = 42"))["status"] == "ok"
    assert (await session.run("print(x)"))["stdout"] == "42\n"
    rates = {}
    for verb, state in (("freeze", "frozen"), ("thaw", "ready")):
        assert (await session.do(verb))["state"] == state
        rates[verb] = await _rate(agent, session)
    # Frozen costs what memory kept costs, which is less; thawed it costs as before.
    assert rates["freeze"] < rates["thaw"]
    assert (await session.run("print(x)"))["stdout"] == "42\n"
    await session.do("boost", {"vcpus": 2})
    assert await _rate(agent, session) > rates["thaw"]
    await session.do("unboost")
    assert await _rate(agent, session) == rates["thaw"]
    found = (await agent.get(session.path)).json()
    lives = (_moment(found["expires_at"]) - _moment(found["created_at"])) / 60
    # An hour, and a quarter of one for each of the three cells.
    assert lives == pytest.approx(60 + 3 * 15, abs=0.1)
    assert found["idle"] == "15m"
    refused = await agent.post("/v1/sessions", {"language": "python", "ttl": "25h"})
    assert (refused.status_code, refused.json()["field"]) == (422, "ttl")
    assert (await agent.delete(session.path)).json()["state"] == "ended"
    gone = (await agent.get(f"/v1/sandboxes/{session.sandbox_id}")).json()
    assert gone["state"] == "destroyed"


async def _rate(agent: Client, session: Session) -> int:
    return int((await agent.get(f"/v1/sandboxes/{session.sandbox_id}")).json()["rate_msats_per_s"])


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def _keeps_state(session: Session, words: tuple[str, str, str]) -> None:
    sets, prints, fails = words
    assert (await session.run(sets))["status"] == "ok"
    assert (await session.run(prints))["stdout"] == "42\n"
    failed = await session.run(fails)
    assert failed["status"] == "error", failed
    assert failed["error"]["name"]
    assert (await session.run(prints))["stdout"] == "42\n"


@pytest.mark.parametrize("language", IN_BASE)
async def test_every_language_of_the_base_image_keeps_a_session(real: Served, language: str) -> None:
    await _keeps_state(await begin(real.client, language), IN_BASE[language])


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_language_of_the_large_image_keeps_a_session(real: Served) -> None:
    """All in one sandbox, side by side."""
    if not (IMAGES / "languages").exists():
        pytest.skip("there is no image languages: run `sandboxer image build languages`")
    wanted = {"image": "languages", "resources": {"disk_mb": 256, "memory_mb": 1024}}
    sandbox = (await real.client.post("/v1/sandboxes", wanted)).json()["id"]
    for language, words in IN_LANGUAGES.items():
        session = await begin(real.client, language, sandbox_id=sandbox)
        await _keeps_state(session, words)
        assert (await real.client.delete(session.path)).json()["state"] == "ended", language


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_pictures_and_tables_come_as_themselves(real: Served) -> None:
    if not (IMAGES / "languages").exists():
        pytest.skip("there is no image languages: run `sandboxer image build languages`")
    wanted = {"image": "languages", "resources": {"disk_mb": 256, "memory_mb": 1024}}
    session = await begin(real.client, "python", **wanted)
    drawn = await session.run(PLOT, timeout_s=120)
    assert drawn["status"] == "ok", drawn
    picture = next(shown["image/png"] for shown in drawn["results"] if "image/png" in shown)
    assert base64.b64decode(picture).startswith(b"\x89PNG\r\n")
    framed = await session.run("import pandas; pandas.DataFrame({'a': [1, 2]})", timeout_s=120)
    (shown,) = framed["results"]
    assert "<table" in shown["text/html"]
    assert "a" in shown["text/plain"]


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(7)

"""Sandboxes that ask a model by themselves, on real walls: the platform puts the key in on the way out, and
it is nowhere inside, also not while the question is on its way.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxer.sdk.agent.models import Endpoint, Failed, Scripted
from sandboxer.sdk.sync.client import Sandboxer
from tests.access.egress.world import certified
from tests.support.cli import Cli
from tests.support.clones import Home, agents_home
from tests.support.internet import Internet
from tests.support.platforms import why_not_real

HOST = "api.models.example"
URL = f"https://{HOST}/v1"
KEY = "correct-horse-battery-4711"
CONTROL = "a-word-that-lies-inside"
# Neither matches itself, so that what looks does not find what it looks for in its own words.
LOOK = f"""
echo {CONTROL[:5]}'{CONTROL[5:]}' > /root/control
cat /proc/*/environ /proc/*/cmdline /run/sandboxer/* 2>/dev/null | grep -ac 'hor[s]e-battery'
grep -rlsaE 'hor[s]e-battery|th[a]t-lies-inside' --exclude-dir=proc --exclude-dir=sys /
cat /proc/*/cmdline | grep -ac 'chat/comple[t]ions'
"""


@dataclass
class Seen:
    """What a model was asked, and what was found meanwhile in the sandbox that asks."""

    keys: list[str | None] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    looker: Sandboxer | None = None

    def look(self) -> None:
        assert self.looker is not None
        for one in self.looker.list():
            if one.labels.get("agent") == "immolant" and one.state not in ("destroying", "destroyed"):
                sandbox = self.looker.sandbox(one.id)
                self.inside.append(
                    sandbox.exec(LOOK, timeout_s=60).stdout + sandbox.refresh().model_dump_json()
                )


class Guarded(http.server.ThreadingHTTPServer):
    """A model that answers whoever has the key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Guard)
        context = certified(folder, HOST)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.seen = Seen()
        self.scripted = Scripted([{"when": "capital", "say": "Paris"}])
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class _Guard(http.server.BaseHTTPRequestHandler):
    server: Guarded

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.keys.append(self.headers.get("authorization"))
        if self.headers.get("authorization") == f"Bearer {KEY}":
            self.server.seen.look()
            self._say(200, self.server.scripted.answer(asked))
        else:
            self._say(401, {"error": {"message": "Incorrect API key provided."}})

    def _say(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if why := why_not_real():
        pytest.skip(why)
    made = Guarded(tmp_path_factory.mktemp("model"))
    with made.scripted:
        yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def home(model: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("asked-inside")
    internet = Internet(folder / "internet", {HOST: model.server_port})
    # The authority that `certified` made is in the folder where the model has its certificate.
    internet.trust(next(folder.parent.glob("model*/ca.pem")))
    try:
        with agents_home(folder / "state", settings=internet.settings, program=Internet.__module__) as made:
            model.seen.looker = made.client
            yield made
    finally:
        internet.close()


@pytest.fixture
def cli(home: Home, tmp_path: Path) -> Cli:
    return Cli(home.environment | {"SANDBOXER_CONFIG_DIR": str(tmp_path / "config")})


def think(cli: Cli, secret: str, *more: str) -> tuple[int, str, str]:
    words = ("agent", "think", "--topology", "consensus", "--voters", "1")
    said = cli(*words, "--model-url", URL, "--model-secret", secret, "What is the capital?", *more)
    return said.code, said.out, said.err


def test_a_sandbox_asks_with_a_key_that_is_nowhere_in_it(home: Home, model: Guarded, cli: Cli) -> None:
    assert cli("secret", "set", "MODEL_KEY", stdin=KEY.encode()).code == 0
    code, out, err = think(cli, "MODEL_KEY", "--json")
    assert code == 0, err
    assert json.loads(out)["answer"] == "Paris"
    assert model.seen.keys == [f"Bearer {KEY}"]
    # It was looked for while the sandbox waited for its answer; what lies there beside it is found.
    [inside] = model.seen.inside
    count, found, asking, description = inside.split("\n", 3)
    assert (count, found) == ("0", "/root/control"), inside
    assert int(asking) >= 1
    assert KEY not in description
    assert KEY not in out + err
    assert [one.id for one in home.client.list() if one.labels.get("agent") == "immolant"] == []


@pytest.mark.parametrize("value", ["a-wrong-key", None])
def test_a_key_that_is_wrong_or_missing_is_told_and_leaves_nothing_behind(
    home: Home, cli: Cli, value: str | None
) -> None:
    if value is not None:
        assert cli("secret", "set", "OTHER_KEY", stdin=value.encode()).code == 0
    code, out, err = think(cli, "OTHER_KEY" if value else "NO_KEY")
    assert code != 0
    told = f"the model at {URL} answered 401: " if value else "there is no secret NO_KEY"
    assert told in " ".join(err.split()), err
    assert "Traceback" not in err
    assert "a-wrong-key" not in out + err
    assert [one.id for one in home.client.list() if one.labels.get("agent") == "immolant"] == []


@pytest.mark.parametrize("url", ["http://api.models.example/v1", "https://api.models.example:8443/v1"])
def test_a_model_where_no_key_can_be_put_in_is_refused_before_anything_is_made(url: str) -> None:
    with pytest.raises(Failed, match="by https to port 443"):
        Endpoint(url, "any", secret="MODEL_KEY")

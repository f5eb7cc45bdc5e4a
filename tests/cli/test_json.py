"""`--json` is one document on stdout and nothing else: the resource after the act, or a list of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.main import VERBS, load
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import Cli

# What needs a chain, a registry, a disk of its own or a second machine: tests of their own read its JSON.
ELSEWHERE = {
    *("down", "login", "install", "uninstall", "backup", "restore", "adopt-pool", "bench"),
    *("backend check", "backend list", "backend new"),
    # It never ends: a document a line.
    "file watch",
    *("image build", "image save", "image load", "image gc", "image pull", "image import", "image transfer"),
    *("image accept", "pay demo", "pay top-up", "pay key", "pay show", "quote", "rate list"),
    *("invoice create", "invoice show", "invoice look", "invoice qr", "refund sent", "wallet send"),
    *("gift create", "gift show", "gift code", "gift balance", "gift redeem", "gift approve", "gift deny"),
    *("gift revoke", "gift refund", "wallet balance", "wallet link", "wallet unlink", "wallet sign-in"),
    *("wallet sign-in-with-x", "wallet sign-out", "wallet address", "wallet cap", "wallet genesis"),
    *("wallet create", "wallet show", "wallet offer", "credit transfer", "key top-up", "ledger pay-out"),
    *("webhook redeliver", "service domain create", "service domain verify", "service domain delete"),
    *(
        "context use",
        "context show",
        "ssh-config",
        "context delete",
        "terminal delete",
        "wallet end-sessions",
    ),
    # tests/mcp shows it: there is nothing to allow until a program asks.
    "key allow",
    # tests/agents shows these.
    *("agent clone", "agent give", "agent work", "agent check", "agent think", "agent run", "agent status"),
    # tests/flows shows it.
    "flows check",
    # They guard by a second proof, which needs a wallet.
    *(f"{noun}lock" for noun in ("", "session ", "snapshot ", "volume ", "image ", "service ")),
    *(f"{noun}unlock" for noun in ("", "session ", "snapshot ", "volume ", "image ", "service ")),
}


def commands(name: str, made: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(made, TyperGroup):
        for one, inner in made.commands.items():
            yield from commands(f"{name} {one}", inner)
    else:
        yield name, made


class Walk:
    """Says commands with `--json`, and remembers which."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.said: set[str] = set()

    def __call__(self, command: str, *words: str, stdin: bytes | None = None, code: int = 0) -> Any:
        before, dashes, after = " ".join(words).partition(" -- ") if "--" in words else ("", "", "")
        given = [*words, "--json"] if not dashes else [*before.split(), "--json", "--", *after.split()]
        said = self.cli(*command.split(), *given, stdin=stdin)
        assert said.code == code, (command, said.err)
        # Of the audit log each act is a document, on a line of its own.
        texts = said.out.splitlines() if command == "audit export" else [said.out]
        try:
            document, *others = map(json.loads, texts)
        except ValueError:
            raise AssertionError(f"{command} --json printed {said.out!r}") from None
        assert all(isinstance(one, dict) for one in (document, *others)), (command, said.out)
        self.said.add(command)
        return document

    def changes(self, noun: str, verbs: str, id_: str, *words: str) -> None:
        """Each of these verbs answers with the thing itself."""
        for verb in verbs.split():
            assert self(f"{noun} {verb}".strip(), id_, *words)["id"] == id_, verb

    def lists(self, *said: str) -> None:
        for one in said:
            command, *words = one.split(" | ")
            assert self(command, *words).keys() == {"items", "next"}, command


# A process for each of some 150 commands.
@pytest.mark.timeout(600)
def test_every_command_prints_one_document_which_is_the_resource(
    real_cli: Cli, real_sandbox: Sandbox, tmp_path: Path
) -> None:
    say = Walk(real_cli)
    _processes(say, real_sandbox)
    sandbox = say("create", "--name", "json", "--network", "packages")["id"]
    _sandboxes(say, sandbox)
    _inside(say, sandbox, tmp_path)
    say("account create", "--id", "json", "--reason", "a test")
    _disks(say, sandbox, tmp_path)
    _code(say, tmp_path)
    _services(say, tmp_path)
    _platform(say, tmp_path)
    assert say("delete", sandbox)["state"] == "destroyed"
    every = {
        name
        for verb in VERBS
        for name, made in commands(verb, load(verb))
        if any("--json" in option.opts for option in made.params)
    }
    assert say.said <= every
    assert sorted(every - say.said - ELSEWHERE) == []
    assert sorted(ELSEWHERE - every) == []


def _sandboxes(say: Walk, sandbox: str) -> None:
    say.lists("list", "tree", "profile list", "flows list", f"events | {sandbox}")
    say.changes("", "show unboost freeze thaw stop resume recreate", sandbox)
    say.changes("", "update", sandbox, "--label", "a=b")
    say.changes("", "boost", sandbox, "2")
    say.changes("", "unboost", sandbox)
    assert say("reachability", sandbox)["sandbox_id"] == sandbox
    say("route show", sandbox)
    say("route explain", "agent-dev")
    assert say("profile show", "agent-dev")["id"] == "profile.agent-dev"
    canary = say("canary")["id"]
    other = say("create")["id"]
    assert [one["id"] for one in say("delete", canary, other)["items"]] == [canary, other]


def _inside(say: Walk, sandbox: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert say("exec", sandbox, "--", "true")["exit_code"] == 0
    say("cp", str(tmp_path / "a"), f"{sandbox}:/workspace/a")
    assert say("file move", sandbox, "/workspace/a", "/workspace/b")["path"] == "/workspace/b"
    assert say("file delete", sandbox, "/workspace/b") == {"path": "/workspace/b", "deleted": True}
    assert say("preview inspect", sandbox)["findings"] == []
    preview = say("preview create", sandbox, "8000")["id"]
    say.lists(f"preview list | {sandbox}", f"egress log | {sandbox}")
    assert say("preview delete", sandbox, preview) == {"id": preview, "deleted": True}
    for verb, *words in (("show",), ("allow", "a.example"), ("deny", "b.example"), ("delete", "b.example")):
        assert "rules" in say(f"egress {verb}", sandbox, *words), verb
    say("egress explain", sandbox, "https://a.example/")
    (tmp_path / "rules.json").write_text('{"rules": []}')
    assert say("egress replace", "account", str(tmp_path / "rules.json"))["rules"] == []
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "id")], check=True)
    key = say("ssh-key create", str(tmp_path / "id.pub"))["id"]
    assert say("ssh-key delete", key) == {"id": key, "deleted": True}
    assert say("secret set", "TOKEN", stdin=b"v")["name"] == "TOKEN"
    say.lists("secret list")
    assert say("secret show", "TOKEN")["name"] == "TOKEN"
    say("secret inject", sandbox, "TOKEN")
    say("secret wipe", sandbox, "TOKEN")
    assert say("secret delete", "TOKEN") == {"name": "TOKEN", "deleted": True}


def _processes(say: Walk, sandbox: Sandbox) -> None:
    process = sandbox.processes.start("exec sleep 1000").process_id
    which = (sandbox.id, process)
    say.lists(*(f"{one} | {sandbox.id}" for one in ("process list", "file list", "terminal list", "logs")))
    assert say("process show", *which)["process_id"] == process
    assert say("process signal", *which, "TERM")["process_id"] == process
    assert say("process wait", *which)["running"] is False
    assert say("process delete", *which) == {"process_id": process, "deleted": True}


def _disks(say: Walk, sandbox: str, tmp_path: Path) -> None:
    snapshot = say("snapshot create", sandbox)["id"]
    say.lists("snapshot list", "volume list", "image list")
    say.changes("snapshot", "show", snapshot)
    say.changes("snapshot", "update", snapshot, "--name", "kept")
    assert say("snapshot restore", snapshot)["id"] == sandbox
    clone = say("snapshot clone", snapshot)["sandboxes"][0]["id"]
    say("snapshot tree")
    image = say("image publish", snapshot, "--name", "json")["id"]
    say.changes("image", "show verify", image)
    say.changes("image", "update", image, "--description", "d")
    spawned = say("image spawn", image)["sandboxes"][0]["id"]
    copy = say("image clone", image)["id"]
    say.lists(f"image grants | {image}", f"image grant | {image} | json", f"image revoke | {image} | json")
    say("image export", image, str(tmp_path / "image.tar"))
    say.changes("image", "delete", copy)
    volume = say("volume create", "json", "--size", "1g")["id"]
    say.changes("volume", "show", volume)
    say.changes("volume", "update", volume, "--size", "2g")
    of_volume = say("volume snapshot", volume)["id"]
    assert say("volume restore", volume, of_volume)["id"] == volume
    say.changes("volume", "delete", volume)
    say.changes("snapshot", "delete", snapshot)
    say("delete", clone, spawned)


def _code(say: Walk, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    assert say("run", str(tmp_path / "a.py"))["stdout"] == "1\n"
    job = say("run", str(tmp_path / "a.py"), "--async")["id"]
    say.lists("job list", "session list", "language list")
    say.changes("job", "wait show cancel", job)
    assert say("language show", "python")["name"] == "python"
    session = say("session create", "python")["id"]
    say("session run", session, "1")
    say.changes("session", "show interrupt restart freeze thaw", session)
    say.changes("session", "boost", session, "2")
    say.changes("session", "delete", session)


def _services(say: Walk, tmp_path: Path) -> None:
    serve = "exec python3 -m http.server $PORT"
    service = say("service create", "json", "--command", serve)["id"]
    say.lists("service list", f"service logs | {service}", f"service domain list | {service}")
    say.changes("service", "show redeploy freeze thaw stop start", service)
    say.changes("service", "update", service, "--idle", "1h")
    for verb, *words in (("show",), ("set", "A=b"), ("replace", "B=c"), ("wipe",)):
        assert "names" in say(f"service env {verb}", service, *words), verb
    say.changes("service", "delete", service)


def _platform(say: Walk, tmp_path: Path) -> None:
    for verb in ("capabilities", "discover", "status", "expire", "inspect host", "reap-stale", "pricing",
                 "credit show", "credit usage", "ledger show", "ledger verify", "audit verify", "doctor",
                 "config show", "gift pricing", "audit export", "credit statement", "key tree"):  # fmt: skip
        say(verb)
    say.lists(
        "inspect stale",
        "context list",
        "key list",
        "webhook list",
        "credit segments",
        "credit events",
        "credit sandboxes",
    )
    say.lists("pay list", "pay goods", "invoice list", "refund list", "gift list", "wallet list")
    say.lists("account list", "audit list", "ssh-key list")
    say("edge caddy", "--site", "example.com")
    say("e2b env")
    key = say("key create", "json")["public_key"]
    say("key delegate", "child", "--scope", "exec")
    said = "bearer", "suspend --why w", "reinstate", "update --never-expires", "check", "rotate", "delete"
    for verb, *words in map(str.split, said):
        assert say(f"key {verb}", key, *words)["public_key"] == key, verb
    hook = say("webhook create", "https://localhost/hook")["id"]
    say("webhook test", hook, code=Exit.ERROR)
    say.lists(f"webhook deliveries | {hook}")
    say.changes("webhook", "show rotate", hook)
    say.changes("webhook", "update", hook, "--off")
    assert say("webhook delete", hook) == {"id": hook, "deleted": True}
    why = ("--reason", "a test")
    assert say("account show", "json")["account"]["id"] == "json"
    say.changes("account", "entitle suspend reinstate cap", "json", *why)
    say("credit add", "json", "5", *why)
    say.changes("account", "delete", "json", *why)

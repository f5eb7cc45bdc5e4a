"""Errors speak the words of the door that they come through: commands, calls of the client, or routes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxer
from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.main import VERBS, load
from sandboxer.edges.cli.output import error_facts, print_error
from sandboxer.edges.http.problems import FRAMEWORK, document
from sandboxer.kernel.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    Refused,
    SandboxerError,
)
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.errors import ApiError, api_error
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.code import Session
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire.next_steps import ACTS, LISTS, OPTIONS, STEPS, Door, in_words_of, next_step, retold
from sandboxer.wire.operations import table
from tests.support.cli import Cli

EVERYWHERE = ("regex", "pydantic", "mended on your side", "corrupted", "traceback")
_HTTP = (
    "/v1/",
    "GET ",
    "POST ",
    "PUT ",
    "PATCH ",
    "DELETE ",
    "Idempotency-Key",
    "header",
    "x-request-id",
    "route",
)
FORBIDDEN = {
    Door.HTTP: EVERYWHERE,
    Door.CLI: (*EVERYWHERE, *_HTTP, "client.", "idempotency_key", "the named field", "retry_after_s"),
    Door.SDK: (*EVERYWHERE, *_HTTP, "--json", "--state-dir"),
}
# Read only by who speaks HTTP by hand: how requests are signed, and the doors of ports.
BY_HAND = ("identity/", "edges/", "payments/stacks", "store/idempotency", "work/execute/one_shot")


def kinds() -> list[type[SandboxerError]]:
    found = [SandboxerError]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one.__module__ == "sandboxer.kernel.errors"]
    return found


def said(error: SandboxerError, door: Door) -> list[str]:
    """Message and next step, as they are at a door."""
    problem: dict[str, Any] = document(error, "req_1")
    if door is Door.HTTP:
        return [problem["detail"], problem["next_step"]]
    answered = api_error(problem["status"], problem)
    if door is Door.SDK:
        return [str(answered), answered.next_step, *answered.__notes__]
    facts = error_facts(answered)
    return [facts["message"], facts["next_step"]]


@pytest.mark.parametrize("door", Door)
def test_every_error_says_what_is_wrong_and_what_to_do_at_every_door(door: Door) -> None:
    facts = {
        "why": "it is so",
        "id": "sbx_1",
        "what": "sandbox",
        "field": "ttl",
        "retry_after_s": 3,
        "limit": 1,
    }
    for kind in kinds():
        for error in (kind(**facts), kind()):
            for text in said(error, door):
                assert text.strip(), (kind, door)
                bad = [word for word in FORBIDDEN[door] if word in text]
                assert not bad, (kind.__name__, text, bad)


def test_what_is_not_found_is_listed_by_a_command() -> None:
    for noun, route in LISTS.items():
        error = NotFound(what=noun, id="x")
        assert said(error, Door.HTTP)[1] == f"See what there is: {route}."
        assert said(error, Door.CLI)[1].startswith("See what there is: sandboxer ")
        assert said(error, Door.SDK)[1].startswith("See what there is: client.")


def test_every_act_is_one_at_all_doors() -> None:
    routes = {f"{one.method} {one.path}" for one in table.OPERATIONS} | {"GET /openapi.json"}
    assert set(ACTS) <= routes
    assert set(LISTS.values()) <= set(ACTS)
    usual = {kind.code: kind.next_step for kind in kinds()}
    assert {code: words.http for code, words in STEPS.items()}.items() <= usual.items()
    with Sandboxer(url="http://127.0.0.1:1", public_key=NOBODY, secret_key=NOBODY) as client:
        for route, words in ACTS.items():
            assert command_of(words.cli.split()[1:]), words.cli
            assert callable(reach(client, ast.parse(words.sdk.format("sbx_1"), mode="eval").body)), route


def command_of(words: list[str]) -> bool:
    """Whether the command line has it, with the options that it names."""
    if words == ["--help"]:
        return True
    if words[0] not in VERBS:
        return False
    command: Any = load(words[0])
    rest = words[1:]
    if VERBS[words[0]].is_group:
        command, rest = command.commands.get(rest[0]), rest[1:]
    known = {option for one in getattr(command, "params", ()) for option in one.opts}
    # What is behind `--` is for the inside.
    ours = rest[: rest.index("--")] if "--" in rest else rest
    return command is not None and all(word in known for word in ours if word.startswith("-"))


def reach(client: Sandboxer, node: ast.expr) -> object:
    """What an expression of the client means, without calling anything that asks the platform."""
    match node:
        case ast.Name(id="client"):
            return client
        case ast.Name(id="help"):
            return help
        case ast.Attribute(value=ast.Call(func=ast.Attribute(attr="get")), attr=name):
            return getattr(Session, name)
        case ast.Attribute(value=value, attr=name):
            return getattr(reach(client, value), name)
        case ast.Call(func=ast.Attribute(attr="sandbox")):
            return client.sandbox("sbx_1")
        case ast.Call(func=function):
            return reach(client, function)
    raise AssertionError(ast.dump(node))


def test_no_hint_or_message_leaves_a_route_on_the_command_line() -> None:
    bad = []
    for path, text in [*written(), *((Path("problems"), words) for _, words in FRAMEWORK.values())]:
        if re.search(r"/v1/|\b(GET|POST|PUT|PATCH|DELETE) ", in_words_of(Door.CLI, text)):
            bad.append(f"{path}: {text}")
    assert not bad, "\n".join(bad)


def written() -> Iterator[tuple[Path, str]]:
    """Every `hint`, `why` and `next_step` that is written down for a caller."""
    root = Path(sandboxer.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if str(name).startswith(BY_HAND):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "why", "next_step"):
                yield from ((name, text) for text in texts(node.value))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("hint", "why"):
                # A noun that is filled in is one of the table.
                yield from ((name, text) for text in texts(node.value) if "/v1/xs" not in text)


# Errors that other parts of the platform read, and no caller.
BETWEEN_PARTS = (
    *("accounts/revocation", "backends/", "money/ledger", "money/metering", "money/buckets", "edges/e2b/"),
    *("payments/chains", "payments/wallet/spenders", "payments/hot_wallet", "sandboxes/repository"),
)


@pytest.mark.parametrize("kind", ["Conflict", "NotFound", "or_not_found"])
def test_every_conflict_and_everything_that_is_not_there_says_what_helps(kind: str) -> None:
    root = Path(sandboxer.__file__).parent
    bad = []
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if name.startswith((*BETWEEN_PARTS, "kernel/errors")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == kind:
                given = {word.arg: word.value for word in node.keywords}
                what = given.get("what")
                # What has no name of its own here is a noun of the table of operations.
                is_noun = what is not None and not isinstance(what, ast.Constant)
                is_listed = isinstance(what, ast.Constant) and what.value in LISTS
                if not ("hint" in given or is_listed or is_noun):
                    bad.append(f"{name}:{node.lineno}: {ast.unparse(node)}")
    assert not bad, "\n".join(bad)


def texts(node: ast.expr) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "x" for p in one.values)  # type: ignore[misc]
        elif (
            isinstance(one, ast.Constant)
            and isinstance(one.value, str)
            and not isinstance(node, ast.JoinedStr)
        ):
            yield one.value


def test_a_person_sees_a_sentence_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    problem = document(NotFound(what="volume", id="data"), "req_1")
    print_error(api_error(404, problem), is_json=False)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown == "error: No such volume: data. See what there is: sandboxer volume list."


def test_no_sentence_on_the_command_line_begins_with_the_kind_of_error() -> None:
    for error in (
        Conflict(why="data is in use"),
        Refused(why="data is in use"),
        InvalidRequest(field="volume", why="data is in use"),
    ):
        for seen in (error, api_error(409, document(error, "req_1"))):
            assert error_facts(seen)["message"].removeprefix("volume: ") == "data is in use"


def test_a_size_that_is_refused_is_named_as_it_was_given() -> None:
    error = InvalidRequest(field="resources.memory_mb", why="101376 MB is more than it allows (16384 MB)")
    assert said(error, Door.CLI)[0].startswith("--memory: 101376 MB")
    assert said(error, Door.SDK)[0].startswith("Invalid resources.memory_mb:")
    opened: Any = load("preview")
    verbs = (load("create"), opened.commands["create"])
    options = {option for verb in verbs for param in verb.params for option in param.opts}
    assert set(OPTIONS.values()) <= options


# Errors that no command of the caller's mends: to wait, to send less, or a wish of the caller's own.
WITHOUT_A_COMMAND = {
    "error",
    "refused",
    "invalid_request",
    "too_many_requests",
    "over_budget",
    "address_used",
    "work_needed",
    "idempotency_conflict",
    "fate_unknown",
    "no_rate",
    "superseded",
    "broken",
    "unauthenticated",
    "second_proof_needed",
    "ambiguous",
    "not_found",
    "disk_full",
    "conflict",
}


def test_an_error_about_a_sandbox_names_the_command_that_mends_it() -> None:
    place = {"sandbox_id": "sbx_1"}
    for kind in kinds():
        error = kind(why="it is so", path="/a", id="ses_1", account_id="acc_1", signal="x", state="ready")
        problem: Any = document(error, "req_1", place)
        step = error_facts(api_error(problem["status"], problem))["next_step"]
        assert "SANDBOX " not in step.replace(".", " "), (kind, step)
        assert "sandboxer " in step or kind.code in WITHOUT_A_COMMAND, (kind.__name__, step)
        # `Conflict` and `NotFound` have it where they are about a sandbox or a noun that can be listed.
    assert "sandboxer show sbx_1" in document_step(Conflict(why="it is so"), place)


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("frozen", "sandboxer thaw sbx_1"),
        ("stopped", "sandboxer resume sbx_1"),
        ("failed", "sandboxer recreate sbx_1"),
        ("provisioning", "sandboxer show sbx_1"),
        ("destroyed", "sandboxer create"),
        ("ready", "sandboxer show sbx_1"),
    ],
)
def test_what_a_state_does_not_allow_names_the_way_out_of_it(state: str, command: str) -> None:
    error = IllegalTransition(signal="exec", state=state)
    assert command in document_step(error, {"sandbox_id": "sbx_1"})
    # A lifecycle of another noun has its own words.
    assert "sbx_1" not in document_step(error, {})


def test_a_header_is_no_advice_to_who_types_commands() -> None:
    hint = "Make a new X-Nonce for every request, also when repeating one."
    assert next_step(Door.CLI, "unauthenticated", hint) == STEPS["unauthenticated"].cli
    assert next_step(Door.HTTP, "unauthenticated", hint) == hint
    said = "Not authenticated: the nonce was used. Make a new X-Nonce for every request."
    assert retold(Door.CLI, said) == "Not authenticated: the nonce was used."
    assert retold(Door.CLI, f"Invalid ttl: no. {STEPS['invalid_request'].http}").endswith("what it takes.")


def test_a_name_with_a_space_can_be_pasted_into_a_shell() -> None:
    text = "Remove it first (DELETE /v1/sandboxes/my%20dev)."
    assert in_words_of(Door.CLI, text) == "Remove it first (sandboxer delete 'my dev')."
    assert in_words_of(Door.SDK, text) == 'Remove it first (client.sandbox("my dev").destroy()).'


def document_step(error: SandboxerError, place: dict[str, str]) -> str:
    problem: Any = document(error, "req_1", place)
    return str(error_facts(api_error(problem["status"], problem))["next_step"])


def test_where_nothing_is_sold_no_wallet_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    for words in (("top-up", "1000"), ("key", "1")):
        refused = cli("pay", *words, "--wallet", str(tmp_path / "none"), "--json")
        assert refused.code == Exit.ERROR
        assert refused.error["message"] == "Nothing is sold here: this platform takes no payments."
        assert "sandboxer create" in refused.error["next_step"]


def test_a_second_sandbox_of_a_name_is_refused_with_what_helps(cli: Cli) -> None:
    assert cli("create", "--name", "only one").code == Exit.OK
    refused = cli("create", "--name", "only one")
    assert refused.code == Exit.REFUSED
    shown = " ".join(refused.err.split())
    assert shown.startswith("error: you have a sandbox only one already (sbx_")
    assert shown.endswith("or remove it first (sandboxer delete 'only one').")
    assert cli("exec", "only one", "--", "true").code == Exit.OK
    assert cli("delete", "only one").code == Exit.OK
    assert cli("create", "--name", "only one").code == Exit.OK


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ("create", "--ttl", "5parsecs"),
            "error: --ttl: it does not have the right form: how long it lives once ready, as 30s, 15m,",
        ),
        (("create", "--profile", "none"), "See which ones there are: sandboxer profile list."),
        (("logs", "nosuch"), "error: No such sandbox or service: nosuch. See what there is: sandboxer list,"),
        (("key", "delete", "nosuch"), "error: No such key: nosuch. See what there is: sandboxer key list."),
        (("ssh-key", "delete", "ssk_" + "0" * 26), "See what there is: sandboxer ssh-key list."),
        (("volume", "create", "data"), "Say how large it shall be: --size 1g"),
        (("create", "--profile", "nope"), "--profile: there is no profile.nope; known are profile."),
        (
            ("webhook", "test", "nosuch"),
            "error: No such webhook: nosuch. See what there is: sandboxer webhook",
        ),
        (("wallet", "link", "--wallet", "/none"), "or make one: (umask 077; openssl rand -hex 32 > /none)"),
        (("exec",), "Missing argument 'ID': Name of the sandbox, its id (sbx_…), or a beginning of that."),
        (("create", "dev3"), "There is no place for 'dev3' here. To give a name: --name dev3"),
        (("secret", "set", "TOKEN", "v"), "The value is read from stdin, or asked for: printf %s VALUE |"),
        (("run", "x.py", "--nope"), "Usage: sandboxer run [OPTIONS] {FILE} [ARGV…]..."),
    ],
)
def test_what_a_newcomer_gets_wrong_names_the_way_out(cli: Cli, words: tuple[str, ...], shown: str) -> None:
    said = cli(*words)
    assert said.code in (Exit.REFUSED, Exit.USAGE, Exit.ERROR)
    assert shown in " ".join(said.err.split()), said.err


def test_a_command_line_that_is_wrong_is_told_as_json_to_who_wants_json(cli: Cli) -> None:
    for words in (("list", "--json", "--nope"), ("show", "--json"), ("crate", "--json")):
        said = cli(*words)
        assert (said.code, said.out) == (Exit.USAGE, "")
        assert said.error["code"] == "usage"
        assert said.error["next_step"].startswith("See how it is used: sandboxer")
    assert cli("show", "--json").error["message"].startswith("Missing argument 'ID'")


def test_a_webhook_is_meant_by_the_beginning_of_its_id(cli: Cli) -> None:
    made = cli("webhook", "create", "https://example.com/hook", "--json").json["id"]
    assert cli("webhook", "show", made[:12], "--json").json["id"] == made
    assert cli("webhook", "delete", made[:12], "--json").json == {"id": made, "deleted": True}


@pytest.mark.parametrize("verb", [("key", "create", "laptop"), ("e2b", "env")])
def test_a_key_for_an_account_that_is_not_there_opens_none_unless_it_is_said(
    cli: Cli, verb: tuple[str, ...]
) -> None:
    account = f"tema-{verb[0]}"
    wrong = cli(*verb, "--account", account)
    assert (wrong.code, wrong.out) == (4, "")
    assert f"No such account: {account}" in wrong.err
    assert f"sandboxer account create --id {account}" in wrong.err
    assert cli("account", "show", account).code == 4
    assert cli(*verb, "--account", account, "--open").code == 0
    assert cli(*verb, "--account", account).code == 0


def test_parts_of_an_answer_are_words_and_no_code(cli: Cli) -> None:
    opened = cli("account", "create", "--name", "Words", "--reason", "test")
    [account] = re.findall(r"acc_[0-9a-z]{26}", opened.out)
    assert opened.err == f"next: sandboxer key create NAME --account {account}\n"
    shown = cli("account", "show", account).out
    assert re.search(r"^account name +Words *$", shown, re.MULTILINE)
    assert re.search(r"^money balance +0 *$", shown, re.MULTILINE)
    for text in (shown, cli("capabilities").out):
        assert re.search(r"\{'|\['|True|False", text) is None


def test_a_terminal_that_is_refused_names_what_wakes_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.stop()
    with pytest.raises(ApiError) as refused:
        sandbox.terminal.open(cols=80, rows=24)
    assert refused.value.next(Door.CLI) == f"Start it first: sandboxer resume {sandbox.id}."


def test_a_delegated_key_is_told_what_it_lacks_and_who_helps(cli: Cli) -> None:
    words = ("--scope", "sandboxes:create", "--slots", "1")
    made = cli("key", "delegate", "narrow", *words, "--json").json
    child = {f"SANDBOXER_{name.upper()}": made[name] for name in ("public_key", "secret_key")}
    assert cli("create", "-q", **child).code == Exit.OK
    full = cli("create", "-q", "--json", **child).error
    assert full["message"].endswith("this key may have 1 sandbox at once, its children's included")
    assert "sandboxer list" in full["next_step"]
    assert "sandboxer key delegate NAME --scope exec" in cli("exec", "x", "--json", "--", "true", **child).err


def test_a_list_of_nothing_says_what_makes_one(cli: Cli) -> None:
    assert cli("session", "list").out == "none; make one with sandboxer session create python\n"
    assert cli("session", "list", "--json").items == []
    sandbox_id = cli("create", "-q").out.strip()
    assert cli("process", "list", sandbox_id).out == "none\n"
    assert "has no process in the background" in cli("logs", sandbox_id).err


def test_a_key_is_meant_by_its_name_while_one_alone_has_it(cli: Cli) -> None:
    made = [cli("key", "create", "twin", "--json").json["public_key"] for _ in range(2)]
    both = cli("key", "delete", "twin")
    assert (both.code, all(key in both.err for key in made)) == (Exit.REFUSED, True)
    assert cli("key", "delete", made[0]).code == Exit.OK
    assert cli("key", "delete", "twin").out == f"revoked {made[1]}\n"
    assert cli("key", "bearer", "-q").out.startswith("sk_")


def test_events_keep_to_a_line_each_at_eighty_columns(cli: Cli) -> None:
    sandbox_id = cli("create", "-q").out.strip()
    said = cli("events", sandbox_id, COLUMNS="80").out.splitlines()
    assert [line.split()[3] for line in said] == ["requested", "provisioning", "ready"]
    assert max(map(len, said)) <= 80


def test_one_byte_is_not_bytes(cli: Cli) -> None:
    assert cli("secret", "set", "SHORT", stdin=b"v").out == "kept SHORT (1 B)\n"


def test_a_wrong_command_line_is_told_without_the_library_s_words(cli: Cli) -> None:
    assert (
        "Error: Invalid value for 'PORT': it should be at most 65535"
        in cli("preview", "create", "x", "99999").err
    )
    assert "Error: Say what to run: sandboxer exec x -- COMMAND" in cli("exec", "x").err


def test_what_a_state_refuses_is_one_sentence_and_the_way_out(cli: Cli) -> None:
    sandbox_id = cli("create", "-q").out.strip()
    cli("freeze", sandbox_id)
    said = cli("process", "list", sandbox_id).err
    assert said.startswith("error: It is frozen, which does not allow processes. Let it go on first: ")
    assert said.endswith(f"sandboxer thaw {sandbox_id}.\n")
    assert "freeze by caller" in cli("events", sandbox_id).out
    assert cli("show", sandbox_id).out.count("_") == sandbox_id.count("_")


def test_ways_to_a_sandbox_are_commands(cli: Cli) -> None:
    sandbox_id = cli("create", "-q").out.strip()
    said = cli("reachability", sandbox_id)
    assert "/v1/" not in said.out
    assert f"sandboxer shell {sandbox_id}" in said.out


def test_an_address_for_everyone_that_would_show_secrets_is_refused_by_name(
    real_cli: Cli, real_sandbox: Sandbox
) -> None:
    name = real_sandbox.id
    real_cli("exec", name, "--command", "echo 1 > /workspace/.env")
    refused = real_cli("preview", "create", name, "8000", "--public")
    assert (refused.code, "/workspace/.env" in refused.err) == (4, True), refused
    assert "--despite-findings" in refused.err
    looked = real_cli("preview", "inspect", name, "--json")
    assert (looked.code, looked.json["findings"][0]["permissions"]) == (1, "644"), looked
    opened = real_cli("preview", "create", name, "8000", "--public", "--despite-findings")
    assert (opened.code, "may be shown /workspace/.env" in opened.err) == (0, True), opened
    assert real_cli("exec", name, "--", "chmod", "o-r", "/workspace/.env").code == 0
    assert real_cli("preview", "create", name, "8001", "--public").code == 0


def test_a_preview_s_address_stands_alone_for_scripts(cli: Cli) -> None:
    sandbox_id = cli("create", "-q").out.strip()
    loud, quiet = (cli("preview", "create", sandbox_id, "8000", *more) for more in ((), ("-q",)))
    assert [len(said.out.splitlines()) for said in (loud, quiet)] == [1, 1]
    assert f"sandboxer preview delete {sandbox_id}" in loud.err
    assert quiet.err == ""


def test_a_file_that_is_not_there_is_told_by_its_name(cli: Cli) -> None:
    said = cli("image", "pull", "oci-archive:nosuch.tar")
    assert (said.code, said.err) == (
        Exit.ERROR,
        "error: nosuch.tar cannot be used: No such file or directory. Check its name.\n",
    )

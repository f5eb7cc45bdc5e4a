"""`exec`: output as it comes, stdin passed on, the inside exit code ours."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import PROGRAM, Cli


def test_output_and_exit_code_are_those_of_the_command(cli: Cli, sandbox: Sandbox) -> None:
    said = cli("exec", sandbox.id, "--command", "echo out; echo err >&2; exit 7")
    assert (said.code, said.out, said.err) == (7, "out\n", "err\n")


def test_words_after_the_id_reach_the_program_as_they_are(cli: Cli, sandbox: Sandbox) -> None:
    assert cli("exec", sandbox.id, "--", "echo", "--json", "-x", "a b").out == "--json -x a b\n"


def test_json_holds_the_whole_result(cli: Cli, sandbox: Sandbox) -> None:
    said = cli("exec", sandbox.id, "--json", "--command", "echo hi; exit 3")
    assert said.code == 3
    assert (said.json["stdout"], said.json["exit_code"], said.json["timed_out"]) == ("hi\n", 3, False)


def test_neither_or_both_of_argv_and_command_is_wrong_usage(cli: Cli, sandbox: Sandbox) -> None:
    assert cli("exec", sandbox.id).code == 2
    assert cli("exec", sandbox.id, "--command", "true", "--", "true").code == 2


def test_a_command_comes_no_sooner_on_the_processor_than_others(real_cli: Cli, real_sandbox: Sandbox) -> None:
    """The server itself comes first; what it starts for a tenant does not inherit that."""
    assert real_cli("exec", real_sandbox.id, "--", "nice").out == "0\n"


def test_a_command_on_an_absent_sandbox_exits_4(cli: Cli) -> None:
    assert cli("exec", "sbx_" + "0" * 26, "--", "true").code == 4


def test_stdin_is_passed_on_in_both_ways_of_answering(real_cli: Cli, real_sandbox: Sandbox) -> None:
    data = b"line\n" * 200_000
    said = real_cli("exec", real_sandbox.id, "--", "wc", "-c", stdin=data)
    assert said.out.strip() == str(len(data))
    assert real_cli("exec", real_sandbox.id, "--json", "--", "cat", stdin=b"hi").json["stdout"] == "hi"
    head = real_cli("exec", real_sandbox.id, "--partial-stdin", "--", "head", "-c", "1", stdin=data)
    assert (head.out, head.code) == ("l", 0)


def test_input_that_was_not_taken_is_said_and_is_the_exit_code(
    real_cli: Cli, real_sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "input").write_bytes(b"line\n" * 200_000)

    def run(*words: str) -> tuple[int, str]:
        with (tmp_path / "input").open("rb") as file:
            whole = [*PROGRAM, "exec", real_sandbox.id, *words]
            done = subprocess.run(
                whole, env=real_cli.environment, stdin=file, capture_output=True, timeout=60
            )
        return done.returncode, " ".join(done.stderr.decode().split())

    for more in ((), ("--json",)):
        code, words = run(*more, "--", "head", "-c", "1")
        assert code == 4
        assert "not all taken" in words
        assert re.search(r"the command took \d+ (bytes and no more|of 1000000 bytes)", words)
    code, words = run("--command", "head -c 1 >/dev/null; exit 7")
    assert code == 7
    assert "not all taken" in words


def test_a_command_that_reads_late_gets_all_of_our_input(real_cli: Cli, real_sandbox: Sandbox) -> None:
    data = random.randbytes(1_500_000)
    said = real_cli("exec", real_sandbox.id, "--command", "sleep 1; sha256sum", stdin=data)
    assert said.out.split()[0] == hashlib.sha256(data).hexdigest()


def test_bytes_that_are_no_text_come_out_unchanged(real_cli: Cli, real_sandbox: Sandbox) -> None:
    done = subprocess.run(
        [*PROGRAM, "exec", real_sandbox.id, "--", "printf", r"\377\000\200"],
        env=real_cli.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == b"\xff\x00\x80"


def test_output_is_live(real_cli: Cli, real_sandbox: Sandbox) -> None:
    words = [*PROGRAM, "exec", real_sandbox.id, "--command", "echo first; sleep 30"]
    with subprocess.Popen(
        words, env=real_cli.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as running:
        assert running.stdout is not None
        assert running.stdout.read(6) == b"first\n"
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130


def test_an_interrupted_command_does_not_go_on_inside(real_cli: Cli, real_sandbox: Sandbox) -> None:
    words = [*PROGRAM, "exec", real_sandbox.id, "--command", "echo up; exec sleep 987"]
    with subprocess.Popen(
        words, env=real_cli.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as running:
        assert running.stdout is not None
        assert running.stdout.read(3) == b"up\n"
        running.send_signal(signal.SIGINT)
        running.wait(20)
    deadline = time.monotonic() + 10
    while real_sandbox.exec("grep -l '^sleep' /proc/[0-9]*/cmdline").exit_code == 0:
        assert time.monotonic() < deadline, "sleep is still running inside"


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_timeout_kills_and_tells(real_cli: Cli, real_sandbox: Sandbox, extra: list[str]) -> None:
    said = real_cli("exec", real_sandbox.id, "--timeout", "1s", *extra, "--", "sleep", "60")
    assert said.code == 137
    assert "timed out" in said.err if not extra else said.json["timed_out"] is True


def test_cwd_env_and_user_hold_inside(real_cli: Cli, real_sandbox: Sandbox) -> None:
    said = real_cli(
        "exec",
        real_sandbox.id,
        "--cwd",
        "/tmp",
        "--env",
        "A=1",
        "--user",
        "nobody",
        "--command",
        "pwd; echo $A; id -un",
    )
    assert said.out == "/tmp\n1\nnobody\n"


def test_what_is_not_there_is_127_and_what_cannot_be_run_126(real_cli: Cli, real_sandbox: Sandbox) -> None:
    real_sandbox.files.write("/workspace/text", b"no program")
    for words, code, said in (
        (["nosuchcmd", "-x"], 127, "nosuchcmd: command not found"),
        (["/no/such/file"], 127, "/no/such/file: command not found"),
        (["/workspace/text"], 126, "/workspace/text: cannot be run"),
    ):
        for stdin in (None, b"input"):
            ran = real_cli("exec", real_sandbox.id, "--", *words, stdin=stdin)
            assert (ran.code, ran.err.strip()) == (code, said)
    told = real_cli("exec", real_sandbox.id, "--json", "--", "nosuchcmd")
    assert (told.code, told.error["code"]) == (127, "path_not_found")
    # Another thing that is missing is no missing command.
    assert real_cli("exec", real_sandbox.id, "--cwd", "/nowhere", "--", "true").code == 4


def test_a_sandbox_is_named_by_its_name_or_the_beginning_of_its_id(cli: Cli) -> None:
    made = [cli("create", "--name", name, "--json").json["id"] for name in ("dev", "one", "two")]
    taken = cli("create", "--name", "two")
    assert (taken.code, made[2] in taken.err) == (4, True), taken
    assert cli("exec", "dev", "--", "echo", "hi").out == "hi\n"
    assert cli("exec", made[0][:20], "--", "echo", "hi").out == "hi\n"
    both = cli("delete", "dev", "sbx_")
    assert both.code == 4
    assert made[1] in both.err
    assert made[2] in both.err
    unknown = cli("delete", "dev", "nobody")
    assert (unknown.code, "sandboxer list" in unknown.err) == (4, True)
    assert "sandboxer snapshot list" in cli("snapshot", "show", "nobody").err
    # Nothing is gone before all of them are known.
    assert cli("show", "dev", "--json").json["state"] == "ready"
    assert cli("delete", "dev", *made[1:]).code == 0

"""`run` and `jobs`: a program from a file or a pipe, its output live, its exit code ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import PROGRAM, Cli


def test_a_file_is_run_by_its_extension_or_first_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text("echo out; echo err >&2; exit 7")
    said = cli("run", str(tmp_path / "hello.sh"))
    assert (said.code, said.out, said.err) == (7, "out\n", "err\n")
    (tmp_path / "noext").write_text("#!/bin/bash\necho by its first line")
    assert cli("run", str(tmp_path / "noext")).out == "by its first line\n"


def test_a_pipe_is_the_program_or_its_stdin(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "-", "--language", "bash", stdin=b"echo piped").out == "piped\n"
    (tmp_path / "cat.sh").write_text("cat; echo $WORD")
    said = cli("run", str(tmp_path / "cat.sh"), "--env", "WORD=w", stdin=b"given\n")
    assert said.out == "given\nw\n"


def test_files_go_in_and_artifacts_come_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("data")
    (tmp_path / "copy.sh").write_text("cat b.txt > out.txt; cat a.txt >> out.txt")
    words = ["run", str(tmp_path / "copy.sh"), "--file", str(tmp_path / "a.txt")]
    words += ["--file", f"b.txt={tmp_path / 'a.txt'}", "--artifact", "*.txt", "--artifact", "none"]
    said = cli(*words, "--into", str(tmp_path / "back"))
    assert (tmp_path / "back" / "out.txt").read_text() == "datadata"
    assert "left out: none (there is no such file)" in said.err
    whole = cli("run", str(tmp_path / "copy.sh"), "--json", "--file", str(tmp_path / "a.txt"))
    assert (whole.json["exit_code"], whole.json["language"]) == (whole.code, "sh")


def test_what_cannot_be_run_is_said_with_what_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.pyy").write_text("")
    said = cli("run", str(tmp_path / "x.pyy"))
    assert (said.code, "the nearest is" in said.err) == (4, True)
    assert cli("run", str(tmp_path / "absent.py")).code == 1


def test_jobs_are_queued_waited_for_listed_and_cancelled(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("echo done; exit 3")
    (tmp_path / "long.sh").write_text("echo begun; sleep 100000")
    job_id = cli("run", str(tmp_path / "job.sh"), "--async").out.strip()
    waited = cli("job", "wait", job_id)
    assert (waited.code, waited.out) == (3, "done\n")
    assert job_id in cli("job", "list", "--state", "finished").out
    long = cli("run", str(tmp_path / "long.sh"), "--async", "--json").json["id"]
    assert cli("job", "wait", long, "--timeout", "1s").code == 5
    told = cli("job", "wait", long[:20], "--timeout", "2s")
    assert (told.code, "waiting: it runs in sbx_" in told.err) == (5, True)
    assert cli("job", "show", long, "--json").json["state"] == "running"
    cancelled = cli("job", "cancel", long)
    assert "cancelled" in cancelled.out
    assert "begun" in cancelled.out
    assert cli("job", "wait", long).code == 137


def test_output_is_live(real_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('first', flush=True)\ntime.sleep(60)")
    words = [*PROGRAM, "run", str(tmp_path / "slow.py")]
    with subprocess.Popen(
        words, env=real_cli.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"first\n"
        assert running.poll() is None
        running.kill()


def test_a_program_runs_in_the_image_that_is_named(real_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text("print(open('/opt/tool').read())")
    made = real_cli("create", "-q").out.strip()
    assert real_cli("exec", made, "--", "sh", "-c", "echo mine > /opt/tool").code == Exit.OK
    snapshot = real_cli("snapshot", "create", made, "--json").json["id"]
    assert real_cli("image", "publish", snapshot, "--name", "run-tools").code == Exit.OK
    assert real_cli("run", str(tmp_path / "look.py"), "--image", "run-tools").out == "mine\n\n"
    job = real_cli("run", str(tmp_path / "look.py"), "--image", "run-tools", "--async").out.strip()
    assert real_cli("job", "wait", job).out == "mine\n\n"
    refused, create = (
        real_cli("run", str(tmp_path / "look.py"), "--image", "no"),
        real_cli("create", "--image", "no"),
    )
    assert (refused.code, refused.err) == (create.code, create.err)
    real_cli("delete", made)


def test_flags_of_the_program_go_behind_two_dashes(real_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "words.sh").write_text('echo "$@"')
    refused = real_cli("run", str(tmp_path / "words.sh"), "--title", "x", NO_COLOR="1")
    assert (refused.code, "--title" in refused.err) == (Exit.USAGE, True)
    assert real_cli("run", str(tmp_path / "words.sh"), "--", "--title", "x").out == "--title x\n"
    assert real_cli("run", "--", str(tmp_path / "words.sh"), "--title").out == "--title\n"

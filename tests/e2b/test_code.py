"""The code interpreter on real walls, through E2B's own Python SDK for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2b.exceptions import TimeoutException
from e2b_code_interpreter import Sandbox


@pytest.fixture(scope="module")
def sandbox(real_key: str) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=600, allow_internet_access=False) as made:
        yield made


def test_code_keeps_what_was_defined_and_says_what_it_comes_to(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 20; print('said')")
    heard: list[str] = []
    code = "import sys; print('ü', file=sys.stderr); x + 1"
    done = sandbox.run_code(code, on_stderr=lambda message: heard.append(message.line))
    assert done.text == "21"
    assert done.logs.stderr == heard == ["ü\n"]
    assert done.error is None
    assert done.execution_count == 2


def test_what_goes_wrong_is_an_error_and_not_the_end(sandbox: Sandbox) -> None:
    failed = sandbox.run_code("1 / 0")
    assert failed.error is not None
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero")
    assert "1 / 0" in failed.error.traceback
    assert sandbox.run_code("'on'").text == "on"


def test_contexts_are_apart_and_begin_where_they_are_told(sandbox: Sandbox) -> None:
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("y = 1", context=context).error is None
    assert sandbox.run_code("'y' in globals()").text == "False"
    assert context.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.restart_code_context(context)
    assert sandbox.run_code("'y' in globals()", context=context).text == "False"
    sandbox.remove_code_context(context)
    assert context.id not in [one.id for one in sandbox.list_code_contexts()]


def test_cells_may_be_written_as_in_a_notebook(sandbox: Sandbox) -> None:
    indented = """
        y = 3
        if y:
            y += 1
        y
    """
    assert sandbox.run_code(indented).text == "4"
    assert sandbox.run_code("!echo by the shell\nz = 1").logs.stdout == ["by the shell\n"]
    (shown,) = sandbox.run_code(r"display({'text/latex': r'\alpha'}, raw=True)").results
    assert (list(shown.formats()), shown.latex) == (["latex"], r"\alpha")
    code = "import { readFileSync as read } from 'fs'\nconsole.log(typeof read)"
    assert sandbox.run_code(code, language="js").logs.stdout == ["function\n"]
    assert sandbox.run_code("typeof read", language="javascript").text == "function"


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "import os; print(os.environ.get('IT'))"), ("bash", "echo ${IT:-None}")],
)
def test_variables_of_one_run_are_gone_after_it(sandbox: Sandbox, language: str, code: str) -> None:
    for envs, said in (({"IT": "a 'b'"}, "a 'b'\n"), (None, "None\n")):
        assert sandbox.run_code(code, language=language, envs=envs).logs.stdout == [said]


def test_the_default_contexts_are_there_before_they_are_used(real_key: str) -> None:
    with Sandbox.create(timeout=120, allow_internet_access=False) as fresh:
        first, second = fresh.list_code_contexts()
        assert (first.language, second.language, first.cwd) == ("python", "javascript", "/home/user")
        assert fresh.run_code("1 + 1", context=first).text == "2"
        made = fresh.create_code_context()
        assert fresh.list_code_contexts()[-1].id == made.id


def test_a_run_whose_sandbox_is_killed_says_so(real_key: str) -> None:
    sandbox = Sandbox.create(timeout=120, allow_internet_access=False)
    with pytest.raises(TimeoutException, match="sandbox was killed while the request was in progress"):
        sandbox.run_code(
            "import time; print('on', flush=True); time.sleep(300)", on_stdout=lambda _: sandbox.kill()
        )


def test_another_language_and_one_that_takes_too_long(sandbox: Sandbox) -> None:
    assert sandbox.run_code("echo $((6 * 7))", language="bash").logs.stdout == ["42\n"]
    with pytest.raises(Exception, match=r"[Tt]ime"):
        sandbox.run_code("import time; time.sleep(600)", timeout=1)
    assert sandbox.run_code("1 + 1", timeout=20).text == "2"

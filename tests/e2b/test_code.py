"""The code interpreter on real walls, through E2B's own Python SDK for it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator

import pytest
from e2b.exceptions import TimeoutException
from e2b_code_interpreter import Sandbox
from e2b_code_interpreter.charts import BarChart, SuperChart

from sandboxer.artifacts.images import build_image
from tests.support.platforms import IMAGES


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


def test_a_thing_is_shown_in_every_form_that_it_has(sandbox: Sandbox) -> None:
    code = """
        class Rich:
            def __repr__(self): return "rich"
            def _repr_html_(self): return "<b>rich</b>"
            def _repr_latex_(self): return r"\\rho"
            def _repr_markdown_(self): return "*rich*"
            def _repr_json_(self): return {"rich": True}
            def _repr_png_(self): return b"png"
            def _repr_e2b_data_(self): return {"a": [1, float("nan")]}
            def _repr_mimebundle_(self, include=None, exclude=None): return {"text/x-mine": "mine"}
        Rich()
    """
    (shown,) = sandbox.run_code(code).results
    assert (shown.text, shown.html, shown.latex, shown.markdown) == ("rich", "<b>rich</b>", r"\rho", "*rich*")
    assert (shown.json, shown.png) == ({"rich": True}, base64.b64encode(b"png").decode())
    assert (shown.data, shown.extra) == ({"a": [1, None]}, {"text/x-mine": "mine"})


def test_what_code_comes_to_is_told_from_what_it_displays(sandbox: Sandbox) -> None:
    done = sandbox.run_code("display('on the way'); [1, {'a': None}]")
    assert [(one.text, one.is_main_result) for one in done.results] == [
        ("on the way", False),
        ("[1, {'a': None}]", True),
    ]
    assert (done.text, done.results[1].json) == ("[1, {'a': None}]", [1, {"a": None}])


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


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.3])
def test_a_run_whose_sandbox_is_killed_before_its_interpreter_has_begun_says_so(
    real_key: str, after_s: float
) -> None:
    sandbox = Sandbox.create(timeout=120, allow_internet_access=False)
    killer = threading.Timer(after_s, sandbox.kill)
    killer.start()
    with pytest.raises(TimeoutException, match="sandbox"):
        sandbox.run_code("import time; time.sleep(300)")
    killer.join()


def test_another_language_and_one_that_takes_too_long(sandbox: Sandbox) -> None:
    assert sandbox.run_code("echo $((6 * 7))", language="bash").logs.stdout == ["42\n"]
    with pytest.raises(Exception, match=r"[Tt]ime"):
        sandbox.run_code("import time; time.sleep(600)", timeout=1)
    assert sandbox.run_code("1 + 1", timeout=20).text == "2"


@pytest.fixture(scope="module")
def complete(real_key: str) -> Iterator[Sandbox]:
    """A sandbox of the image that is made for the code interpreter."""
    build_image("code-interpreter-v1", IMAGES)
    with Sandbox.create(timeout=900, allow_internet_access=False) as made:
        assert made.get_info().template_id == "code-interpreter-v1"
        yield made


PLOTS = """
import matplotlib.pyplot as plt
figure, (left, right) = plt.subplots(1, 2)
left.plot([1, 2], [3, 4])
right.scatter([1], [2])
plt.show()
plt.bar(["a", "b"], [1, 2], label="both")
"the end"
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_figures_come_as_pictures_and_as_data(complete: Sandbox) -> None:
    done = complete.run_code(PLOTS)
    assert done.error is None, done.error
    first, end, last = done.results
    assert (done.text, end.text, done.logs.stderr) == ("the end", "the end", [])
    assert all(base64.b64decode(one.png).startswith(b"\x89PNG") for one in (first, last))
    assert isinstance(first.chart, SuperChart)
    assert [one.type.value for one in first.chart.elements] == ["line", "scatter"]
    assert isinstance(last.chart, BarChart)
    assert [(bar.label, bar.value, bar.group) for bar in last.chart.elements] == [
        ("a", 1, "both"),
        ("b", 2, "both"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tables_pictures_and_notebooks_own_display_are_known(complete: Sandbox) -> None:
    (table,) = complete.run_code(
        "import pandas; pandas.DataFrame({'a': [1, None], 'at': pandas.to_datetime(['2026-01-02', None])})"
    ).results
    assert "<table" in table.html
    assert table.data == {"a": [1, None], "at": ["2026-01-02T00:00:00", "NaT"]}
    saved = complete.run_code("from PIL import Image; Image.new('RGB', (4, 4)).save('black.png')")
    assert base64.b64decode(saved.results[0].png).startswith(b"\x89PNG")
    (shown,) = complete.run_code("from IPython.display import HTML, display; display(HTML('<b>'))").results
    assert (shown.html, shown.is_main_result) == ("<b>", False)
    assert complete.commands.run("python -c 'print(1)' && ipython --version").stdout.startswith("1\n9.")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("language", "sets", "says", "value", "fault"),
    [
        ("ts", "const x: number = 6", "console.log(x as any)", "x * 7", "null!.nothing"),
        ("java", "int x = 6;", "System.out.println(x)", "x * 7", "Object o = null; o.toString()"),
        ("r", "x <- 6", "cat(x, '\\n', sep = '')", "x * 7", "stop('oops')"),
    ],
)
def test_its_languages_keep_what_was_set(
    complete: Sandbox, language: str, sets: str, says: str, value: str, fault: str
) -> None:
    context = complete.create_code_context(language=language)
    for code in (sets, "  "):
        done = complete.run_code(code, context=context)
        assert (done.error, done.results) == (None, [])
    assert "".join(complete.run_code(says, context=context).logs.stdout) == "6\n"
    done = complete.run_code(value, context=context)
    assert (done.text or "").removeprefix("[1] ") == "42"
    failed = complete.run_code(fault, context=context)
    assert failed.error is not None
    assert failed.error.name
    assert (complete.run_code(value, context=context).text or "").removeprefix("[1] ") == "42"
    complete.remove_code_context(context)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_java_and_r_stop_when_they_are_told_and_plots_of_r_are_pictures(complete: Sandbox) -> None:
    loops = {"java": "while (true) Thread.sleep(10);", "r": "repeat Sys.sleep(0.01)"}
    for language, loop in loops.items():
        context = complete.create_code_context(language=language)
        complete.run_code("1 + 1", context=context)
        with pytest.raises(Exception, match=r"[Tt]ime"):
            complete.run_code(loop, context=context, timeout=2)
        assert complete.run_code("1 + 1", context=context, timeout=60).text in ("2", "[1] 2")
    (plot,) = complete.run_code("plot(1:3)", language="r").results
    assert base64.b64decode(plot.png).startswith(b"\x89PNG")

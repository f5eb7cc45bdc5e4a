"""Runs cells of Python: one namespace keeps the state, the last expression is shown, pictures and tables are
shown as such.

Runs inside a sandbox, in the interpreter that keeps the state: standard library only.
"""

import ast
import base64
import builtins
import contextlib
import importlib.util
import io
import json
import linecache
import os
import re
import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, ClassVar

code_in = os.fdopen(int(os.environ.pop("SANDBOXER_CODE")), "rb", buffering=0)
control = int(os.environ.pop("SANDBOXER_CONTROL"))
os.environ.pop("SANDBOXER_FLAG", None)
for fd in (code_in.fileno(), control):
    os.set_inheritable(fd, False)
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
space = main.__dict__
space["__builtins__"] = builtins
sys.argv = [""]
sys.path.insert(0, "")
is_running = False
shell: Any = getattr(builtins, "__xonsh__", None)
# The forms that a thing may have, and the methods by which it says so.
FORMS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
    "e2b/data": "_repr_e2b_data_",
    "e2b/chart": "_repr_e2b_chart_",
}
KIND = re.compile(r"[\w.+-]+/[\w.+-]+")
MOST_TEXT = 1 << 20
# A table with more cells than this is shown, and not handed over as data.
MOST_DATA = 100_000
# A line for the shell, as notebooks have it.
SHELL_LINE = re.compile(r"^([ \t]*)(?:!|%(?=pip ))(.+)$", re.MULTILINE)


def answer(word: str, text: Any) -> None:
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else bytes(text)
    data = b"%s %d\n" % (word.encode(), len(data)) + data
    while data:
        data = data[os.write(control, data) :]


def on_interrupt(number: int, frame: Any) -> None:
    # Between two cells there is nothing to interrupt.
    if is_running:
        raise KeyboardInterrupt


def display(*things: Any, raw: bool = False, **others: Any) -> None:
    """Shows things in every form they offer; raw ones say by themselves which forms they have."""
    for thing in things:
        show(thing if raw and isinstance(thing, dict) else forms_of(thing))


def show(forms: dict[str, Any], role: str = "") -> None:
    """Answers with the forms of a thing that can be written down."""
    flush()
    for kind, form in forms.items():
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            if KIND.fullmatch(kind) and len(kind) <= 100:
                answer(kind, text_of(form))
    answer("flush", role)


def text_of(form: Any) -> str:
    if isinstance(form, bytes):
        return base64.b64encode(form).decode()
    return form if isinstance(form, str) else json.dumps(form, default=plain)


def plain(thing: Any) -> Any:
    """Returns something that JSON knows for something that it does not."""
    said = said_by(thing, "isoformat")
    return said if said is not None else thing.tolist() if hasattr(thing, "tolist") else str(thing)


def forms_of(thing: Any) -> dict[str, Any]:
    """Returns the forms of a thing by media type, its text first: what comes last has the least room."""
    forms: dict[str, Any] = {"text/plain": repr(thing)[:MOST_TEXT]}
    # Some things have every method that one asks them for.
    if not isinstance(thing, type) and said_by(thing, "_repr_no_such_form_") is None:
        said = {kind: said_by(thing, name) for kind, name in FORMS.items()}
        bundle = said_by(thing, "_repr_mimebundle_", include=None, exclude=None)
        said |= bundle if isinstance(bundle, dict) else {}
        forms |= {kind: form for kind, form in said.items() if form is not None}
    return forms | known_forms(thing)


def said_by(thing: Any, name: str, **words: Any) -> Any:
    try:
        method = getattr(thing, name, None)
        said = None if method is None else method(**words)
    except Exception:
        return None
    # Some say more about it, which is not for us.
    return said[0] if isinstance(said, tuple) else said


def known_forms(thing: Any) -> dict[str, Any]:
    """Returns forms that a thing does not know to have. Whoever made one has imported its module."""
    if isinstance(thing, (list, dict)):
        return form("application/json", lambda: json.dumps(thing, default=lambda one: one.tolist()))
    tables, plots = sys.modules.get("pandas"), sys.modules.get("matplotlib.figure")
    if tables is not None and isinstance(thing, tables.DataFrame) and thing.size <= MOST_DATA:
        return form("e2b/data", lambda: {str(name): list(column) for name, column in thing.items()})
    if plots is not None and isinstance(thing, plots.Figure):
        picture = io.BytesIO()
        thing.savefig(picture, format="png", bbox_inches="tight")
        return {"image/png": picture.getvalue()} | form("e2b/chart", lambda: chart_of(thing))
    return {}


def form(kind: str, make: Callable[[], Any]) -> dict[str, Any]:
    """Returns a form by its media type, or nothing if it cannot be made."""
    try:
        made = make()
    except Exception:
        return {}
    return {kind: made} if made else {}


def chart_of(figure: Any) -> Any:
    """Returns what a figure shows, as data. Raises ImportError where the image cannot read it."""
    return importlib.import_module("e2b_charts").chart_figure_to_dict(figure)


def show_figures(*_: Any, **others: Any) -> None:
    """Shows the figures that are open, and closes them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        display(pyplot.figure(number))
    pyplot.close("all")


def change_pyplot(module: Any) -> None:
    module.show = show_figures


def change_pictures(module: Any) -> None:
    """Makes pictures of PIL show up: those that are to be shown, and those that are saved by a name."""
    save = module.Image.save

    def save_and_show(image: Any, fp: Any, format: Any = None, **options: Any) -> None:
        save(image, fp, format, **options)
        if isinstance(fp, str):
            display(image)

    module.Image.save = save_and_show
    module.Image.show = lambda image, *_, **others: display(image)


def change_display(module: Any) -> None:
    module.display = display


class Changes:
    """Changes modules when they are imported first, by whomever: nobody waits for one that is not used."""

    left: ClassVar[dict[str, Callable[[Any], None]]] = {
        "matplotlib.pyplot": change_pyplot,
        "PIL.Image": change_pictures,
        "IPython.core.display_functions": change_display,
    }

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        change = cls.left.pop(name, None)
        spec = None if change is None else importlib.util.find_spec(name)
        if change is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module: Any) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def run(code: str, n: int) -> None:
    name = f"<cell {n}>"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    if shell is not None:
        # xonsh has a grammar of its own and uses the same namespace.
        shell.execer.exec(code + "\n", glbs=space, filename=name)
        return
    try:
        tree = ast.parse(code, name)
    except SyntaxError:
        plain = SHELL_LINE.sub(lambda line: f"{line[1]}__import__('os').system({line[2]!r})", code)
        if plain == code:
            raise
        # What the shell says it ended with is nothing that the cell comes to.
        tree = ast.parse(plain + "\nNone", name)
    ending = tree.body[-1] if tree.body else None
    last = ending if isinstance(ending, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    exec(compile(tree, name, "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), space)
        if value is not None:
            space["_"] = value
            show(forms_of(value), "main")
    show_figures()


def complain(error: BaseException) -> None:
    said: dict[str, Callable[[], str]] = {
        "ename": lambda: type(error).__name__,
        "evalue": lambda: str(error)[:20000],
        "trace": lambda: traced(error)[-200000:],
    }
    for word, text in said.items():
        try:
            answer(word, text())
        except BaseException:
            # Whatever the cell's own class raises, a SystemExit too, must not end the interpreter.
            answer(word, "")


def traced(error: BaseException) -> str:
    trace = traceback.TracebackException.from_exception(error)
    # The lines of the cells and of what they call, without those of this file.
    trace.stack = traceback.StackSummary.from_list(f for f in trace.stack if f.filename != __file__)
    return "".join(trace.format())


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()


def fresh_streams() -> None:
    """Restores the standard streams, because code may have closed or replaced them; the next cell must be
    able to print.
    """
    for name, fd in (("stdout", kept_out), ("stderr", kept_err)):
        stream = getattr(sys, name, None)
        if stream is None or getattr(stream, "closed", False):
            fresh = os.fdopen(os.dup(fd), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
            setattr(sys, name, fresh)


def read_cell() -> tuple[int, str]:
    head = b""
    while not head.endswith(b"\n"):
        piece = code_in.read(1)
        if not piece:
            os._exit(0)
        head += piece
    n, size = (int(word) for word in head.split())
    code = b""
    while len(code) < size:
        code += code_in.read(size - len(code))
    return n, code.decode("utf-8", "surrogatepass")


kept_out, kept_err = os.dup(1), os.dup(2)
sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
signal.signal(signal.SIGINT, on_interrupt)
os.environ.setdefault("MPLBACKEND", "agg")
builtins.display = display  # type: ignore[attr-defined]
sys.meta_path.insert(0, Changes)
__file__ = run.__code__.co_filename
os.write(control, b"end 0 0\n")
while True:
    n, code = read_cell()
    status = 0
    try:
        is_running = True
        try:
            run(code, n)
        finally:
            is_running = False
    except BaseException as error:
        status = 1
        with contextlib.suppress(BaseException):
            status = int(not isinstance(error, SystemExit) or error.code not in (None, 0))
        if status:
            complain(error)
    with contextlib.suppress(BaseException):
        fresh_streams()
    flush()
    os.write(control, b"end %d %d\n" % (status, n))

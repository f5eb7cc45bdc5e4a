"""Runs cells of Python: one namespace keeps the state, the last expression is shown, pictures and tables are
shown as such.

Runs inside a sandbox, in the interpreter that keeps the state: standard library only.
"""

import ast
import base64
import builtins
import contextlib
import io
import linecache
import os
import re
import signal
import sys
import traceback
import types
from typing import Any

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
SHOWN = (
    ("html", "_repr_html_"),
    ("markdown", "_repr_markdown_"),
    ("svg", "_repr_svg_"),
    ("latex", "_repr_latex_"),
    ("json", "_repr_json_"),
    ("png", "_repr_png_"),
    ("jpeg", "_repr_jpeg_"),
)


WORDS = {
    "value": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "latex": "text/latex",
    "json": "application/json",
    "png": "image/png",
    "jpeg": "image/jpeg",
}
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
    """Shows things in the richest form they offer; raw ones say by themselves which forms they have."""
    for thing in things:
        flush()
        if raw and isinstance(thing, dict):
            for word, kind in WORDS.items():
                if kind in thing:
                    answer(word, str(thing[kind]))
        elif is_figure(thing):
            show_figure(thing)
        else:
            show(thing)
        answer("flush", "")


def show(thing: Any) -> None:
    for word, name in SHOWN:
        try:
            method = getattr(thing, name, None) if not isinstance(thing, type) else None
            shown = None if method is None else method()
        except Exception:
            continue
        if shown is None:
            continue
        if isinstance(shown, tuple):
            shown = shown[0]
        if isinstance(shown, bytes):
            shown = base64.b64encode(shown).decode()
        answer(word, shown if isinstance(shown, str) else repr(shown))
    answer("value", repr(thing))


def is_figure(thing: Any) -> bool:
    plots = sys.modules.get("matplotlib.figure")
    return plots is not None and isinstance(thing, plots.Figure)


def show_figure(figure: Any) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    answer("png", base64.b64encode(picture.getvalue()))
    answer("value", repr(figure))


def show_figures() -> None:
    """Shows the figures that a cell left open."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        show_figure(pyplot.figure(number))
        answer("flush", "")
    pyplot.close("all")


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
            display(value)
    show_figures()


def complain(error: BaseException) -> None:
    trace = traceback.TracebackException.from_exception(error)
    # The lines of the cells and of what they call, without those of this file.
    trace.stack = traceback.StackSummary.from_list(f for f in trace.stack if f.filename != __file__)
    text = "".join(trace.format())
    answer("ename", type(error).__name__)
    try:
        answer("evalue", str(error)[:20000])
    except BaseException:
        # Whatever the cell's own __str__ raises, a SystemExit too, must not end the interpreter.
        answer("evalue", "")
    answer("trace", text[-200000:])


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
    except SystemExit as error:
        if error.code not in (None, 0):
            status = 1
            complain(error)
    except BaseException as error:
        status = 1
        complain(error)
    fresh_streams()
    flush()
    os.write(control, b"end %d %d\n" % (status, n))

"""A verb of the command line that asks the platform something and shows the answer.

`verb` gives it what all such verbs share: which platform, `--json`, and a second proof where one may be
asked for. So the function says only what is asked and how the answer looks to a person.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, TypeVar

import typer
from rich.text import Text

from sandboxer.edges.cli.options import GivenProof, Json, StateDir, Url, Wallet, anyone, client, with_wallet
from sandboxer.edges.cli.output import err, out, print_answer, print_json, waiting
from sandboxer.sdk.sync.client import Sandboxer

Act = TypeVar("Act", bound=Callable[..., object])
_PROOF = {"wallet": (Wallet, None), "proof": (GivenProof, None)}
_SHARED = {"json": (Json, False), "url": (Url, None), "state_dir": (StateDir, None)}


def group(words: str) -> typer.Typer:
    """A group of verbs of its own, as in `image build`; `words` is its help."""
    return typer.Typer(help=words, no_args_is_help=True, rich_markup_mode="rich")


class Answer:
    """An answer for programs, and what people see instead of it: the parts of one line, lines, or tables.

    `note` is for people, on stderr; `code` is what the command ends with.
    """

    def __init__(
        self,
        value: object,
        *parts: Any,
        note: Any = None,
        code: int = 0,
        soft_wrap: bool = False,
        sep: str = " ",
    ) -> None:
        self.value = value
        self.parts = parts
        self.note = note
        self.code = code
        self.soft_wrap = soft_wrap
        self.sep = sep


def each(answers: Iterable[Answer]) -> Answer:
    """One answer of several, a line each. Programs get one alone as it is, and several as a list."""
    done = list(answers)
    lines = [Text(" ").join(_text(part) for part in one.parts) for one in done]
    values = [one.value for one in done]
    return Answer(values[0] if len(values) == 1 else values, *lines, sep="\n")


def _text(part: Any) -> Text:
    return part if isinstance(part, Text) else Text.from_markup(str(part))


def verb(
    app: typer.Typer,
    name: str,
    *,
    may_need_proof: bool = False,
    is_open: bool = False,
    wait: str = "",
    timeout_s: float = 60.0,
    **more: Any,
) -> Callable[[Act], Act]:
    """Adds the function to `app`. It is called with the client first, then with its own parameters.

    What it returns is printed: an `Answer` as it says, None not at all, anything else as its facts. A
    function that prints by itself has a parameter `json`. People see that they wait with the words of `wait`.
    `is_open` verbs are for callers without a key, too. `more` is Typer's.
    """

    def declare(act: Act) -> Act:
        own = list(inspect.signature(act, eval_str=True).parameters.values())[1:]
        prints = any(one.name == "json" for one in own)

        def run(*, json: bool, url: Any, state_dir: Any, **given: Any) -> None:
            confirm = with_wallet(given.pop("wallet"), given.pop("proof")) if may_need_proof else None
            moving = waiting(wait, is_json=json) if wait else nullcontext()
            if prints:
                given["json"] = json
            made = anyone if is_open else client
            with made(url, state_dir, timeout_s=timeout_s, confirm=confirm) as platform, moving:
                answer = act(platform, **given)
            show_answer(answer, is_json=json)

        functools.update_wrapper(run, act)
        run.__signature__ = _signature(own, _PROOF if may_need_proof else {})  # type: ignore[attr-defined]
        app.command(name, **more)(run)
        return act

    return declare


def step(
    app: typer.Typer,
    name: str,
    subject: Any,
    ask: Callable[[Sandboxer, str], object],
    words: str,
    example: str,
    **more: Any,
) -> None:
    """Adds a verb that names nothing but its subject, and shows what `ask` returns. `more` is of `verb`."""

    def act(platform: Sandboxer, given: str) -> object:
        return ask(platform, given)

    act.__doc__ = f"{words}\n\nExamples:\n\n    sandboxer {example}\n"
    act.__annotations__["given"] = subject
    verb(app, name, **more)(act)


def _signature(own: list[inspect.Parameter], more: dict[str, tuple[Any, Any]]) -> inspect.Signature:
    """Gives Typer the verb's own parameters, and the shared options behind them."""
    keyword, named = inspect.Parameter.KEYWORD_ONLY, {one.name for one in own}
    shared = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in (more | _SHARED).items()
        if name not in named
    ]
    return inspect.Signature([*(one.replace(kind=keyword) for one in own), *shared])


def show_answer(answer: object, *, is_json: bool) -> None:
    if not isinstance(answer, Answer):
        if answer is not None:
            print_answer(answer, is_json=is_json)
        return
    if is_json:
        print_json(answer.value)
    else:
        if answer.parts:
            out.print(*answer.parts, soft_wrap=answer.soft_wrap, sep=answer.sep)
        if answer.note is not None:
            err.print(answer.note)
    if answer.code:
        raise typer.Exit(answer.code)

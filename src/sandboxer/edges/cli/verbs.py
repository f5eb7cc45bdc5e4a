"""A verb of the command line that asks the platform something and shows the answer.

`verb` gives it what all such verbs share: which platform, `--json`, and a second proof where one may be
asked for. So the function says only what is asked and how the answer looks to a person.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.options import GivenProof, Json, StateDir, Url, Wallet, anyone, client, with_wallet
from sandboxer.edges.cli.output import err, out, plain, print_answer, print_json, resource, waiting
from sandboxer.edges.cli.words import Group

if TYPE_CHECKING:
    from sandboxer.sdk.sync.client import Sandboxer

Act = TypeVar("Act", bound=Callable[..., object])
T = TypeVar("T")
_PROOF = {"wallet": (Wallet, None), "proof": (GivenProof, None)}
_SHARED = {"json": (Json, False), "url": (Url, None), "state_dir": (StateDir, None)}


def group(words: str) -> typer.Typer:
    """A group of verbs of its own, as in `image build`; `words` is its help."""
    made = typer.Typer(help=words, cls=Group, no_args_is_help=True, rich_markup_mode="rich")
    # Typer takes an app with one verb and no callback for that verb itself.
    made.callback()(lambda: None)
    return made


class Answer:
    """An answer for programs, and what people see instead of it: the parts of one line, lines, or tables.

    `note` is for people, on stderr; `code` is what the command ends with; `make` is the command that makes
    one where a list is empty.
    """

    def __init__(
        self,
        value: object,
        *parts: Any,
        note: Any = None,
        code: int = 0,
        soft_wrap: bool = False,
        sep: str = " ",
        make: str = "",
    ) -> None:
        self.value = value
        self.parts = parts
        self.note = note
        self.code = code
        self.soft_wrap = soft_wrap
        self.sep = sep
        self.make = make


def each(answers: Iterable[Answer]) -> Answer:
    """One answer of several, a line each. Programs get one alone as it is, and several as a list."""
    done = list(answers)
    lines = [Text(" ").join(_text(part) for part in one.parts) for one in done]
    values = [one.value for one in done]
    return Answer(values[0] if len(values) == 1 else values, *lines, sep="\n")


def gone(**which: str) -> Answer:
    """Of what leaves no record behind: what named it, and that it is deleted."""
    return Answer({**which, "deleted": True}, "deleted", *(plain(word) for word in which.values()))


def show_pieces(pieces: Iterable[T], show: Callable[[T], None], *, is_json: bool, is_endless: bool) -> None:
    """Shows a list as it comes. Programs get one document of all of it; where it has no end, one a line."""
    if is_json and not is_endless:
        print_json(resource(list(pieces)))
        return
    for piece in pieces:
        print_json(piece) if is_json else show(piece)


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
        app.command(name, **more)(
            _Verb(act, client if not is_open else anyone, may_need_proof, wait, timeout_s)
        )
        return act

    return declare


class _Verb:
    """What Typer calls for a verb. Typer asks for its signature, which costs time, only if it is run."""

    def __init__(
        self, act: Callable[..., object], made: Any, may_need_proof: bool, wait: str, timeout_s: float
    ) -> None:
        self._act = act
        self._made = made
        self._may_need_proof = may_need_proof
        self._wait = wait
        self._timeout_s = timeout_s
        self.__name__, self.__doc__ = act.__name__, act.__doc__
        # The signature tells all of them, evaluated.
        self.__annotations__: dict[str, Any] = {}

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        return _signature(self._own, _PROOF if self._may_need_proof else {})

    @functools.cached_property
    def _own(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self._act, eval_str=True).parameters.values())[1:]

    def __call__(self, *, json: bool, url: Any, state_dir: Any, **given: Any) -> None:
        confirm = with_wallet(given.pop("wallet"), given.pop("proof")) if self._may_need_proof else None
        moving = waiting(self._wait, is_json=json) if self._wait else nullcontext()
        if any(one.name == "json" for one in self._own):
            given["json"] = json
        with self._made(url, state_dir, timeout_s=self._timeout_s, confirm=confirm) as platform, moving:
            answer = self._act(platform, **given)
        show_answer(answer, is_json=json)


class Row(NamedTuple):
    """A verb that passes what is given on to a method of the client, by the same names."""

    name: str
    method: Callable[..., Any]
    words: str
    example: str
    # What it takes beside its subject: the annotation of each, with its default if it has one.
    given: Mapping[str, Any] = MappingProxyType({})
    may_need_proof: bool = False
    wait: str = ""


def rows(
    app: typer.Typer,
    of: Callable[[Sandboxer, dict[str, Any]], object],
    subject: Mapping[str, Any],
    show: Callable[[Any], object],
    *table: Row,
    wait: str = "",
    **more: Any,
) -> None:
    """Adds a verb for each row. `of` says whose method is called, and takes away what named it.

    `subject` is what all of them take first, `show` makes an answer of what comes back, `more` is of `verb`.
    """
    for row in table:
        act = _act(row, of, subject, show)
        verb(app, row.name, may_need_proof=row.may_need_proof, wait=row.wait or wait, **more)(act)


def _act(
    row: Row, of: Callable[..., object], subject: Mapping[str, Any], show: Callable[[Any], object]
) -> Callable[..., object]:
    def act(platform: Sandboxer, **given: Any) -> object:
        return show(row.method(of(platform, given), **given))

    taken = {"platform": object, **subject, **row.given}
    kind = inspect.Parameter.KEYWORD_ONLY
    act.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, annotation=kind_of[0], default=kind_of[1])
            if isinstance(kind_of, tuple)
            else inspect.Parameter(name, kind, annotation=kind_of)
            for name, kind_of in taken.items()
        ]
    )
    act.__doc__ = f"{row.words}\n\nExamples:\n\n    sandboxer {row.example}\n"
    return act


def noun(name: str) -> Callable[[Sandboxer, dict[str, Any]], object]:
    """For `rows`: the noun of that name."""

    def of(platform: Sandboxer, given: dict[str, Any]) -> object:
        return getattr(platform, name)

    return of


def as_it_is(answer: object) -> object:
    return answer


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
        print_json(resource(answer.value))
    else:
        match answer.parts:
            case [Table(row_count=0)]:
                made = f"; make one with[/] sandboxer {answer.make}" if answer.make else "[/]"
                out.print(f"[dim]none{made}", soft_wrap=True)
            case [_, *_]:
                out.print(*answer.parts, soft_wrap=answer.soft_wrap, sep=answer.sep)
        if answer.note is not None:
            err.print(answer.note)
    if answer.code:
        raise typer.Exit(answer.code)

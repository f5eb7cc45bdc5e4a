"""A verb of the command line that asks the platform something and shows the answer.

`verb` gives it what all such verbs share: which platform, `--json`, and a second proof where one may be
asked for. So the function says only what is asked and how the answer looks to a person.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import typer

from sandboxer.edges.cli.options import GivenProof, Json, StateDir, Url, Wallet, client, with_wallet
from sandboxer.edges.cli.output import err, out, print_answer, print_json, waiting

Act = TypeVar("Act", bound=Callable[..., object])
_PROOF = {"wallet": (Wallet, None), "proof": (GivenProof, None)}
_SHARED = {"json": (Json, False), "url": (Url, None), "state_dir": (StateDir, None)}


class Answer:
    """An answer for programs, and what people see instead of it: the parts of one line, or a table.

    `note` is for people, on stderr; `code` is what the command ends with.
    """

    def __init__(
        self, value: object, *parts: Any, note: Any = None, code: int = 0, soft_wrap: bool = False
    ) -> None:
        self.value = value
        self.parts = parts
        self.note = note
        self.code = code
        self.soft_wrap = soft_wrap


def verb(
    app: typer.Typer,
    name: str,
    *,
    may_need_proof: bool = False,
    wait: str = "",
    timeout_s: float = 60.0,
    **more: Any,
) -> Callable[[Act], Act]:
    """Adds the function to `app`. It is called with the client first, then with its own parameters.

    What it returns is printed: an `Answer` as it says, None not at all, anything else as its facts.
    People see that they wait with the words of `wait`. `more` is Typer's.
    """

    def declare(act: Act) -> Act:
        def run(*, json: bool, url: Any, state_dir: Any, **given: Any) -> None:
            confirm = with_wallet(given.pop("wallet"), given.pop("proof")) if may_need_proof else None
            moving = waiting(wait, is_json=json) if wait else nullcontext()
            with client(url, state_dir, timeout_s=timeout_s, confirm=confirm) as platform, moving:
                answer = act(platform, **given)
            show_answer(answer, is_json=json)

        _describe(run, act, {**(_PROOF if may_need_proof else {}), **_SHARED})
        app.command(name, **more)(run)
        return act

    return declare


def _describe(
    run: Callable[..., None], act: Callable[..., object], shared: dict[str, tuple[Any, Any]]
) -> None:
    """`run` looks to Typer like `act` without the client and with the shared options behind its own."""
    keyword, known = inspect.Parameter.KEYWORD_ONLY, act.__globals__
    own = list(inspect.signature(act).parameters.values())[1:]
    parameters = [one.replace(annotation=eval(one.annotation, known), kind=keyword) for one in own]
    parameters += [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in shared.items()
    ]
    run.__name__, run.__doc__, run.__module__ = act.__name__, act.__doc__, act.__module__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}


def show_answer(answer: object, *, is_json: bool) -> None:
    if not isinstance(answer, Answer):
        if answer is not None:
            print_answer(answer, is_json=is_json)
        return
    if is_json:
        print_json(answer.value)
    else:
        out.print(*answer.parts, soft_wrap=answer.soft_wrap)
        if answer.note is not None:
            err.print(answer.note)
    if answer.code:
        raise typer.Exit(answer.code)

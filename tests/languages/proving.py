"""Runs the five programs of a language as any caller would: `POST /v1/execute`, in real sandboxes."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.execute import Execution
from sandboxer.work.languages import PROGRAMS, Language

# For compiling and running; generous, since a busy host is no fault of the language.
WITHIN_S = 300
# A loop is let run for longer than hello took, or a slow start would look like one.
LOOPS_FOR_S = 2
PROFILE_OF_ALL = "profile.languages"
# The input of the program `stdin`, and the exit code of the program `exit`.
LINE = "ping"
EXIT_CODE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program went: what its compiler said if it refused the program, otherwise what the
    program did.
    """

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    refused: bool = False


def stdin_of(program: str) -> str | None:
    return f"{LINE}\n" if program == "stdin" else None


def what_is_wrong(language: Language, program: str, ran: Ran) -> str | None:
    """Returns None if the program did what it must."""
    if program == "loop" and not ran.refused:
        return None if ran.timed_out else _described("it ended by itself", ran)
    if ran.timed_out:
        return _described("it did not end in time", ran)
    if program == "error":
        if ran.exit_code == 0 or ran.refused != (language.compile is not None):
            return _described("a broken program was let run", ran)
        return None if ran.stdout or ran.stderr else "it does not say what is broken"
    if ran.refused:
        return _described("it does not compile", ran)
    if program == "exit":
        return None if ran.exit_code == EXIT_CODE else _described(f"it ended with {ran.exit_code}", ran)
    wanted = f"hello from {language.name}" if program == "hello" else f"got: {LINE}"
    lines = [line.strip() for line in ran.stdout.splitlines()]
    if ran.exit_code != 0 or wanted not in lines:
        return _described(f"it ended with {ran.exit_code} and did not print {wanted!r}", ran)
    return None


def _described(what: str, ran: Ran) -> str:
    return f"{what}; stdout {ran.stdout[-200:]!r}, stderr {ran.stderr[-400:]!r}"


@dataclass(frozen=True)
class Proved:
    """What became of one language: `wrong` says by program what did not work, if anything."""

    language: Language
    version: str
    seconds: float
    # Of hello, from the request to its answer.
    hello_s: float
    wrong: dict[str, str]

    @property
    def is_good(self) -> bool:
        return not self.wrong


def prove_all(client: Sandboxer, wanted: Iterable[Language], *, side_by_side: int = 2) -> Iterator[Proved]:
    """Each as it is done."""
    with ThreadPoolExecutor(side_by_side) as pool:
        tasks = [pool.submit(prove, client, language) for language in wanted]
        for task in as_completed(tasks):
            yield task.result()


def prove(client: Sandboxer, language: Language) -> Proved:
    began = time.monotonic()
    wrong: dict[str, str] = {}
    hello_s = 0.0
    for program in PROGRAMS:
        within_s = math.ceil(2 * hello_s) + LOOPS_FOR_S if program == "loop" else WITHIN_S
        done = client.code.run(
            language.programs[program], language=language.name, stdin=stdin_of(program), ttl_s=within_s
        )
        if program == "hello":
            hello_s = time.monotonic() - began
        if why := what_is_wrong(language, program, _ran(done)):
            wrong[program] = why
    version = _version(client, language)
    if not version:
        wrong["version"] = "its tool does not say which version it is"
    return Proved(language, version, time.monotonic() - began, hello_s, wrong)


def _ran(done: Execution) -> Ran:
    compiled = done.compile
    if compiled is not None and compiled.exit_code != 0:
        return Ran(
            exit_code=compiled.exit_code or done.exit_code or -1,
            stdout=compiled.stdout,
            stderr=compiled.stderr,
            timed_out=compiled.timed_out,
            refused=True,
        )
    return Ran(
        exit_code=-1 if done.exit_code is None else done.exit_code,
        stdout=done.stdout,
        stderr=done.stderr,
        timed_out=done.timed_out,
    )


def _version(client: Sandboxer, language: Language) -> str:
    """The first number with dots that its tool says about itself, else all it says."""
    image = client.languages.get(language.name).images[0]
    with client.create(profile=None if language.in_base else PROFILE_OF_ALL, image=image) as sandbox:
        said = sandbox.exec(list(language.version), timeout_s=WITHIN_S)
    words = f"{said.stdout}\n{said.stderr}".strip()
    found = re.search(r"\d+(\.\d+)+[\w.+~-]*", words)
    return found[0].rstrip(".") if found else words[:40]

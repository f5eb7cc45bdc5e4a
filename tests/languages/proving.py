"""Runs the five programs of a language in a real sandbox, as any caller of the API would."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.work.languages.proof import Ran, stdin_of, what_is_wrong
from sandboxer.work.languages.table import PROGRAMS, Language, commands

COMPILES_WITHIN_S = 180.0
RUNS_WITHIN_S = 60.0
# A loop is let run for longer than hello took, or a slow start would look like one.
LOOPS_FOR_S = 2.0


@dataclass(frozen=True)
class Proved:
    """What became of one language: `wrong` says by program what did not work, if anything."""

    language: Language
    version: str
    image: str
    seconds: float
    wrong: dict[str, str]

    @property
    def is_good(self) -> bool:
        return not self.wrong


def prove_all(
    client: Sandboxer, wanted: Iterable[Language], *, profile: str, side_by_side: int = 2
) -> Iterator[Proved]:
    """Each as it is done, with a sandbox of its own."""
    with ThreadPoolExecutor(side_by_side) as pool:
        tasks = [pool.submit(prove, client, language, profile) for language in wanted]
        for task in as_completed(tasks):
            yield task.result()


def prove(client: Sandboxer, language: Language, profile: str) -> Proved:
    began = time.monotonic()
    wrong: dict[str, str] = {}
    with client.create(profile=profile) as sandbox:
        loop_s = LOOPS_FOR_S
        for program in PROGRAMS:
            started = time.monotonic()
            ran = _run(sandbox, language, program, loop_s if program == "loop" else RUNS_WITHIN_S)
            if program == "hello":
                loop_s = max(LOOPS_FOR_S, 2 * (time.monotonic() - started))
            if why := what_is_wrong(language, program, ran):
                wrong[program] = why
        version = _version(sandbox, language)
        if not version:
            wrong["version"] = "its tool does not say which version it is"
        image = sandbox.info.image
    return Proved(language, version, image, time.monotonic() - began, wrong)


def _run(sandbox: Sandbox, language: Language, program: str, within_s: float) -> Ran:
    folder = f"/workspace/{program}"
    sandbox.files.mkdir(folder)
    how = commands(language, folder)
    sandbox.files.write(how.file, language.programs[program])
    if how.compile is not None:
        built = sandbox.exec(list(how.compile), cwd=folder, timeout_s=COMPILES_WITHIN_S)
        if built.exit_code != 0:
            return Ran(
                exit_code=built.exit_code,
                stdout=built.stdout,
                stderr=built.stderr,
                timed_out=built.timed_out,
                refused=True,
            )
    ran = sandbox.exec(list(how.run), cwd=folder, stdin=stdin_of(program), timeout_s=within_s)
    return Ran(exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr, timed_out=ran.timed_out)


def _version(sandbox: Sandbox, language: Language) -> str:
    """The first number with dots that its tool says about itself, else all it says."""
    said = sandbox.exec(list(language.version), timeout_s=RUNS_WITHIN_S)
    words = f"{said.stdout}\n{said.stderr}".strip()
    found = re.search(r"\d+(\.\d+)+[\w.+~-]*", words)
    return found[0].rstrip(".") if found else words[:40]

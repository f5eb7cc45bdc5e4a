"""This table says which interpreters can keep a session and how each is started. Their programs are in
`drivers/`.

Programming languages read cells from one pipe and answer on another. Shells run as if at a prompt, where an
interrupt ends the line and not the shell; each cell is one `eval` and one report.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from sandboxer.backends.guest import Command, Guest, Process
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, NotFound, PathNotFound, StdinNotTaken
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.use_cases.access import RESIDENT_TAG
from sandboxer.work.exec import kill_quietly
from sandboxer.work.languages import Language, find_language, languages
from sandboxer.work.lines import WORKSPACE, Wanted, merged_env
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.records import Session

# Reads the keeper's source from stdin first: it is not secret, but would clutter the list of processes.
BOOT = (
    "import os,sys\nn,t=int(sys.argv[1]),b''\nwhile len(t)<n:t+=os.read(0,n-len(t))\n"
    "exec(compile(t,'keeper','exec'))"
)


@value_class
class Interpreter:
    """How to start an interpreter. The keeper fills in words in braces."""

    name: str
    argv: tuple[str, ...]
    # The file in `drivers/`; empty for shells, which need none.
    driver: str = ""
    # "length": cells by pipe, with their length before them; "nul": with a NUL after them; "flag": as
    # "length", and interrupted by a file that it looks for; "shell".
    mode: str = "length"
    # An interrupt is sent to its children only, because it would end the interpreter itself.
    spares_itself: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    # For shells: what is sent first, how a cell is run, and how its end is reported.
    first: str = ":"
    run: str = ""
    end: str = ""

    @property
    def language(self) -> Language:
        return languages()[self.name]

    def order(self) -> dict[str, object]:
        """Returns the first order for the keeper."""
        return {
            "op": "start",
            "argv": list(self.argv),
            "driver": driver_text(self.driver) if self.driver else "",
            "mode": self.mode,
            "spares_itself": self.spares_itself,
            "env": dict(self.env),
            "first": self.first,
            "run": self.run,
            "end": self.end,
        }


def _posix(name: str, *argv: str, first: str = "PS1= PS2=; set +m") -> Interpreter:
    return Interpreter(
        name=name,
        argv=argv,
        mode="shell",
        env={"PS1": "", "PS2": ""},
        first=first,
        run="eval '{code}' </dev/null",
        end="printf 'end %d {n}\\n' $? >{path}",
    )


def _c_shell(name: str) -> Interpreter:
    """Returns the entry of a C shell, which cannot quote a newline: its cells are sourced from a file."""
    return Interpreter(
        name=name,
        argv=(name, "-f", "-i"),
        mode="shell",
        first='set prompt=""; set prompt2=""',
        run="source {page} </dev/null",
        end="/usr/bin/printf 'end %d {n}\\n' $status >{path}",
    )


_FROM_FDS = ("{driver}", "{code}", "{control}")
_ALL = (
    Interpreter(name="python", argv=("python3", "-q", "{driver}"), driver="python.py"),
    Interpreter(name="javascript", argv=("node", "-e", "{source}"), driver="node.js"),
    Interpreter(
        name="typescript",
        argv=("node", "-e", "{source}"),
        driver="node.js",
        env={"SANDBOXER_LANGUAGE": "typescript"},
    ),
    Interpreter(
        name="java",
        argv=("java", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "--source", "11", *_FROM_FDS),
        driver="jshell.java",
    ),
    Interpreter(name="ruby", argv=("ruby", "{driver}"), driver="ruby.rb"),
    Interpreter(name="perl", argv=("perl", "{driver}"), driver="perl.pl"),
    Interpreter(name="php", argv=("php", "{driver}"), driver="php.php"),
    Interpreter(name="r", argv=("Rscript", "--vanilla", "{driver}"), driver="r.R"),
    Interpreter(name="lua", argv=("lua", "{driver}"), driver="lua.lua", mode="flag"),
    # Compiled traces never check for interrupts; interpreted code can be interrupted.
    Interpreter(name="luajit", argv=("luajit", "-joff", "{driver}"), driver="lua.lua", mode="flag"),
    _posix("bash", "bash", "--norc", "--noediting", "-i", first="PS1= PS2=; set +H +m"),
    _posix("sh", "sh", "-i"),
    _posix("dash", "dash", "-i"),
    _posix("zsh", "zsh", "-f", "-i", "-o", "no_prompt_sp", "-o", "no_prompt_cr", "+m"),
    _posix("ksh", "ksh", "-i"),
    _posix("mksh", "mksh", "-i"),
    _posix("yash", "yash", "-i", "--norcfile"),
    _posix("ash", "busybox", "ash", "-i"),
    _c_shell("tcsh"),
    _c_shell("csh"),
    Interpreter(name="fish", argv=("fish", "--no-config", "-c", "{source}"), driver="fish.fish", mode="nul"),
    Interpreter(
        name="elvish",
        argv=("elvish", "-norc", "-c", "{source}"),
        driver="elvish.elv",
        mode="nul",
        spares_itself=True,
    ),
    Interpreter(name="xonsh", argv=("xonsh", "--no-rc", "{driver}"), driver="python.py"),
)
INTERPRETERS: Mapping[str, Interpreter] = MappingProxyType({one.name: one for one in _ALL})


def find_interpreter(word: str) -> Interpreter:
    """Returns an interpreter by any name of its language. Raises InvalidRequest that lists the known ones."""
    if (found := INTERPRETERS.get(find_language(word).name)) is None:
        names = ", ".join(sorted(INTERPRETERS))
        raise InvalidRequest(
            field="language", why=f"{word[:60]} runs whole programs only; sessions exist for {names}"
        )
    return found


@cache
def driver_text(name: str) -> str:
    return files(f"{__package__}.drivers").joinpath(name).read_text(encoding="utf-8")


# R takes a second to start on an idle machine.
START_S = 60.0
_MISSING = re.compile("No such file|Cannot find module 'typescript'")


async def start_keeper(guest: Guest, session: Session, sandbox_env: Mapping[str, str]) -> Process:
    """Starts the keeper with nothing but its own source; `give_order` makes it start the interpreter."""
    keeper = driver_text("keeper.py").encode()
    env = merged_env(sandbox_env, Wanted(env=session.env))
    argv = ("python3", "-I", "-S", "-c", BOOT, str(len(keeper)), session.language)
    cwds = (session.cwd,) if session.cwd is not None else (WORKSPACE, "/")
    for cwd in cwds:
        command = Command(argv=argv, env=env, cwd=cwd, has_stdin=True, tag=RESIDENT_TAG)
        try:
            process = await guest.run(command, process_id=session.process_id + ("r" if cwd == "/" else ""))
        except PathNotFound as error:
            if error.facts.get("path") == cwd and cwd != cwds[-1]:
                continue
            if error.facts.get("path") == "python3":
                raise NotAvailable(
                    what="a session", why="its image has no python3, which every session needs"
                ) from error
            raise
        await process.write_stdin(keeper)
        return process
    raise NotFound(what="directory", id=WORKSPACE, hint="Make it in the image, or take another image.")


async def give_order(process: Process, interpreter: Interpreter) -> None:
    # One that has ended already says why when its greeting is waited for.
    with contextlib.suppress(StdinNotTaken):
        await process.write_stdin(json.dumps(interpreter.order()).encode() + b"\n")


async def await_greeting(attached: Attached, session: Session, image: str) -> None:
    """Returns when the interpreter accepts cells. Raises NotAvailable with what it said instead."""
    greeted = asyncio.ensure_future(attached.greeted.wait())
    over = asyncio.ensure_future(attached.over.wait())
    try:
        await asyncio.wait({greeted, over}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        greeted.cancel()
        over.cancel()
    if attached.greeted.is_set() and not attached.over.is_set():
        return
    if not attached.over.is_set():
        await attached.kill("never_ready", f"it was not ready within {START_S:g} s")
        await attached.over.wait()
    why = attached.why
    if missing := next((line for line in why.splitlines() if _MISSING.search(line)), None):
        other = languages()[session.language].image
        why = f"image {image} does not have it ({missing}); the image `{other}` has it"
    raise NotAvailable(what=f"a session of {session.language}", why=why)


async def find_again(guest: Guest, session: Session) -> Process | None:
    """Returns the keeper that a previous server started, or None if it is gone."""
    for process_id in (session.process_id, session.process_id + "r"):
        try:
            return await guest.attach(process_id)
        except NotFound:
            continue
    return None


async def end_leftovers(guest: Guest, session: Session) -> None:
    """Ends whatever earlier starts of this session left running."""
    for info in await guest.processes():
        if info.process_id.startswith(session.id) and info.exit is None:
            async with await guest.attach(info.process_id) as process:
                await kill_quietly(process)

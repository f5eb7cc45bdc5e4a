"""Starts an interpreter in a sandbox, finds one again, and says in plain words why there is none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from sandboxer.backends.guest import Command, Guest, Process
from sandboxer.kernel.errors import NotAvailable, NotFound, PathNotFound
from sandboxer.sandboxes.access import RESIDENT_TAG
from sandboxer.work.commands import WORKSPACE, Wanted, merged_env
from sandboxer.work.deadline import kill_quietly
from sandboxer.work.languages.table import languages
from sandboxer.work.sessions.attached import Attached
from sandboxer.work.sessions.interpreters import BOOT, Interpreter, driver_text
from sandboxer.work.sessions.records import Session

# R takes a second on a quiet machine.
START_S = 60.0


async def start_keeper(guest: Guest, session: Session, sandbox_env: Mapping[str, str]) -> Process:
    """The keeper with its own text and nothing else yet; `give_order` has it start the interpreter."""
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
    raise NotFound(what="directory", id=WORKSPACE)


async def give_order(process: Process, interpreter: Interpreter) -> None:
    await process.write_stdin(json.dumps(interpreter.order()).encode() + b"\n")


async def await_greeting(attached: Attached, session: Session, image: str) -> None:
    """Returns when the interpreter takes cells. Raises NotAvailable with what it said instead."""
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
    if "No such file" in why:
        other = languages()[session.language].image
        why = f"image {image} does not have it ({why}); the image `{other}` has it"
    raise NotAvailable(what=f"a session of {session.language}", why=why)


async def find_again(guest: Guest, session: Session) -> Process | None:
    """The keeper that a server before us started; None if it is gone."""
    for process_id in (session.process_id, session.process_id + "r"):
        try:
            return await guest.attach(process_id)
        except NotFound:
            continue
    return None


async def end_leftovers(guest: Guest, session: Session) -> None:
    """Whatever earlier starts of this session left running."""
    for info in await guest.processes():
        if info.process_id.startswith(session.id) and info.exit is None:
            async with await guest.attach(info.process_id) as process:
                await kill_quietly(process)

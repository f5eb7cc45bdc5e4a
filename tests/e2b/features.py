"""Tries what an agent does with E2B's Python client, of whatever version is installed. Prints as JSON what
came of each feature: true, false where this version has no such thing, or what went wrong.

It is run by the interpreter of an environment of that version, and imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib import metadata
from typing import Any

import e2b
from e2b import Sandbox

WAIT_S = 30
version = tuple(int(number) for number in metadata.version("e2b").split(".")[:2])
FEATURES: dict[str, Callable[[Any], object]] = {}


class AbsentError(Exception):
    """This version of the client has no such thing."""


def feature(title: str) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    def add(check: Callable[[Any], object]) -> Callable[[Any], object]:
        FEATURES[title] = check
        return check

    return add


def need(thing: Any, name: str, *parameters: str) -> Any:
    """Returns what the client calls so, if it has it and it takes these parameters."""
    found = getattr(thing, name, None)
    if found is None:
        raise AbsentError(name)
    if set(parameters) - set(inspect.signature(found).parameters):
        raise AbsentError(f"{name}({', '.join(parameters)})")
    return found


def make(**options: Any) -> Any:
    # The first clients made a sandbox by their constructor.
    return Sandbox.create(**options) if hasattr(Sandbox, "create") else Sandbox(**options)


def wait_for(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def raised(kind: str, call: Callable[[], object]) -> None:
    """Calls what has to fail, by an exception of this name or one below it."""
    try:
        call()
    except Exception as error:
        found = error
    else:
        raise AssertionError(f"no {kind}")
    names = [one.__name__ for one in type(found).__mro__]
    assert kind in names, f"{names[0]} and not {kind}: {found}"


@feature("create, look, list, end")
def life(_: Any) -> None:
    sandbox = make(timeout=120, metadata={"by": "matrix"}, envs={"GIVEN": "1"})
    try:
        assert sandbox.is_running()
        assert sandbox.commands.run("echo $GIVEN").stdout == "1\n"
        listed = Sandbox.list()
        found = listed.next_items() if hasattr(listed, "next_items") else listed
        assert sandbox.sandbox_id in [one.sandbox_id for one in found]
        assert sandbox.set_timeout(300) is None
    finally:
        sandbox.kill()
    assert not sandbox.is_running()
    assert not Sandbox.kill(sandbox.sandbox_id)


@feature("connect")
def connect(sandbox: Any) -> None:
    assert Sandbox.connect(sandbox.sandbox_id).commands.run("echo on").stdout == "on\n"


@feature("information")
def information(sandbox: Any) -> None:
    assert need(sandbox, "get_info")().template_id == "base"


@feature("metrics")
def metrics(sandbox: Any) -> None:
    assert need(sandbox, "get_metrics")()[0].cpu_count > 0


@feature("commands")
def commands(sandbox: Any) -> None:
    heard: list[str] = []
    done = sandbox.commands.run("pwd; echo no >&2", on_stdout=heard.append)
    assert (done.stdout, done.stderr, "".join(heard)) == ("/home/user\n", "no\n", "/home/user\n")
    raised("CommandExitException", lambda: sandbox.commands.run("exit 3"))
    raised("TimeoutException", lambda: sandbox.commands.run("sleep 60", timeout=1))


@feature("background, stdin, signals")
def background(sandbox: Any) -> None:
    options = {"stdin": True} if "stdin" in inspect.signature(sandbox.commands.run).parameters else {}
    reading = sandbox.commands.run("read line; echo got $line", background=True, **options)
    assert reading.pid in [one.pid for one in sandbox.commands.list()]
    sandbox.commands.send_stdin(reading.pid, "this\n")
    assert reading.wait().stdout == "got this\n"
    sleeping = sandbox.commands.run("sleep 600", background=True)
    again = sandbox.commands.connect(sleeping.pid)
    assert sandbox.commands.kill(sleeping.pid)
    raised("CommandExitException", again.wait)


@feature("terminals")
def terminal(sandbox: Any) -> None:
    size = e2b.PtySize if hasattr(e2b, "PtySize") else None
    if size is None:
        size = __import__("e2b.sandbox.commands.command_handle", fromlist=["PtySize"]).PtySize
    opened = sandbox.pty.create(size(rows=24, cols=80))
    sandbox.pty.resize(opened.pid, size(rows=40, cols=100))
    sandbox.pty.send_stdin(opened.pid, b"stty size; exit 0\n")
    seen: list[bytes] = []
    opened.wait(on_pty=seen.append)
    assert b"40 100" in b"".join(seen)


@feature("files")
def files(sandbox: Any) -> None:
    sandbox.files.write("notes/a ü.txt", "text")
    assert sandbox.files.read("notes/a ü.txt") == "text"
    assert bytes(sandbox.files.read("notes/a ü.txt", format="bytes")) == b"text"
    assert [one.name for one in sandbox.files.list("notes")] == ["a ü.txt"]
    assert sandbox.files.rename("notes/a ü.txt", "b").path == "/home/user/b"
    assert sandbox.files.make_dir("made")
    sandbox.files.remove("b")
    assert not sandbox.files.exists("b")
    raised("NotFoundException", lambda: sandbox.files.read("b"))


@feature("many files at once")
def many(sandbox: Any) -> None:
    entries = [{"path": f"many/{no}", "data": str(no)} for no in range(3)]
    write = getattr(sandbox.files, "write_files", sandbox.files.write)
    assert len(write(entries)) == 3
    assert sandbox.files.read("many/2") == "2"


@feature("watch a folder")
def watch(sandbox: Any) -> None:
    sandbox.files.make_dir("watched")
    watcher = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/new", "x")
    seen: list[str] = []

    def is_seen() -> bool:
        seen.extend(event.name for event in watcher.get_new_events())
        return "new" in seen

    wait_for(is_seen)
    watcher.stop()


@feature("signed addresses")
def signed(sandbox: Any) -> None:
    # They need a host of their own, which there is only by a domain.
    if "E2B_SANDBOX_URL" in os.environ or "signature" not in sandbox.download_url("x"):
        raise AbsentError("signatures")
    sandbox.files.write("signed", "by address")
    with urllib.request.urlopen(sandbox.download_url("signed"), timeout=WAIT_S) as answer:
        assert answer.read() == b"by address"


@feature("pause and resume")
def pause(_: Any) -> None:
    need(Sandbox, "pause")
    sandbox = make(timeout=120)
    try:
        sandbox.files.write("kept", "on")
        sandbox.pause()
        assert not sandbox.is_running()
        (getattr(Sandbox, "resume", None) or Sandbox.connect)(sandbox.sandbox_id)
        assert sandbox.files.read("kept") == "on"
    finally:
        Sandbox.kill(sandbox.sandbox_id)


@feature("snapshots and forks")
def snapshots(_: Any) -> None:
    need(Sandbox, "create_snapshot")
    need(Sandbox, "fork")
    sandbox = make(timeout=120)
    try:
        sandbox.files.write("kept", "on")
        kept = sandbox.create_snapshot()
        (fork,) = sandbox.fork(timeout=60)
        made = [fork, Sandbox.create(kept.snapshot_id, timeout=60)]
        assert [one.files.read("kept") for one in made] == ["on", "on"]
        for one in made:
            one.kill()
        assert [Sandbox.delete_snapshot(kept.snapshot_id) for _ in range(2)] == [True, False]
    finally:
        Sandbox.kill(sandbox.sandbox_id)


@feature("a wrong key")
def wrong_key(_: Any) -> None:
    # The first clients have no class of their own for what a server refuses.
    kind = "SandboxException" if version < (2, 15) else "AuthenticationException"
    raised(kind, lambda: make(api_key="e2b_" + "0" * 40))


@feature("an unknown template")
def unknown_template(_: Any) -> None:
    raised("SandboxException", lambda: make(template="no-such-template"))


@feature("asynchronous client")
def asynchronous(_: Any) -> None:
    async def drive() -> None:
        sandbox = await e2b.AsyncSandbox.create(timeout=120)
        changed = asyncio.Event()
        try:
            assert (await sandbox.commands.run("echo on")).stdout == "on\n"
            await sandbox.files.make_dir("seen")
            await sandbox.files.watch_dir("seen", lambda event: changed.set())
            await sandbox.files.write("seen/new", "x")
            await asyncio.wait_for(changed.wait(), WAIT_S)
        finally:
            await sandbox.kill()

    asyncio.run(drive())


@feature("code interpreter")
def code(_: Any) -> None:
    interpreter = __import__("e2b_code_interpreter").Sandbox
    sandbox = interpreter.create(timeout=120) if hasattr(interpreter, "create") else interpreter(timeout=120)
    try:
        sandbox.run_code("x = 20")
        done = sandbox.run_code("print('said'); x + 1")
        assert (done.text, done.logs.stdout) == ("21", ["said\n"])
        assert sandbox.run_code("1 / 0").error.name == "ZeroDivisionError"
        context = sandbox.create_code_context(cwd="/tmp")
        assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    finally:
        sandbox.kill()


def main() -> None:
    sandbox = make(timeout=600)
    seen: dict[str, object] = {}
    try:
        for title, check in FEATURES.items():
            try:
                check(sandbox)
                seen[title] = True
            except AbsentError:
                seen[title] = False
            except Exception as error:
                seen[title] = f"{type(error).__name__}: {error}"[:400]
    finally:
        sandbox.kill()
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()

"""The notebook of a shadow clone: tasks, results and a log, in a git repository. This file runs in the clone.

A task is `tasks/ID`. Who takes it writes `taken/ID`, who has done it `results/ID`; each is a commit, so that
of two who take the same one only the first can push. Every clone writes a log of its own, `log/NAME`, a line
for each act, and every line carries the hash of the one before: a line that is changed or taken out is found.

As the hook of the repository in which clones meet, it refuses a push that changes a log otherwise than by
adding lines to it, what belongs to another clone, or a task or a result that is there already.

It is copied into the sandbox and run by the Python there, so it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

HOME = "/root/work"
PORT = 8000
FIRST = "0" * 64
OF_A_CHECK = "check-"


def line_of(number: int, clone: str, act: str, before: str, at: str) -> str:
    """Returns a line of the log, without its end."""
    return json.dumps({"number": number, "at": at, "clone": clone, "act": act, "before": before})


def hash_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def fault_of(text: str, clone: str) -> str | None:
    """Says what is wrong with a log, and in which line; None: it is whole."""
    before = FIRST
    if text and not text.endswith("\n"):
        return "its last line is cut off"
    for number, line in enumerate(text.splitlines(), 1):
        try:
            told = json.loads(line)
            is_next = (told["number"], told["clone"], told["before"]) == (number, clone, before)
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"line {number} cannot be read"
        if not is_next:
            return f"line {number} does not follow the one before it"
        before = hash_of(line)
    return None


def added_to(text: str, act: str, clone: str, at: str) -> str:
    """Returns the log with one more line."""
    lines = text.splitlines()
    before = hash_of(lines[-1]) if lines else FIRST
    return f"{text}{line_of(len(lines) + 1, clone, act, before, at)}\n"


def open_task(
    tasks: Sequence[str], taken: Mapping[str, str], done: Sequence[str], clone: str, wanted: str | None
) -> str | None:
    """Says which task a clone does next: one that it took and did not finish, else a free one.

    Clones begin in different places, so that few of them want the same. What a check puts there is done by
    who asks for it by name.
    """
    ordered = sorted(tasks, key=lambda task: hash_of(clone + task))
    left = [one for one in ordered if one not in done and one == (wanted or one)]
    left = [one for one in left if wanted or not one.startswith(OF_A_CHECK)]
    mine = [one for one in left if taken.get(one, "").strip() == clone]
    free = [one for one in left if one not in taken]
    return next(iter([*mine, *free]), None)


def git(*words: str, told: str | None = None) -> str:
    """Runs git in the notebook and returns what it printed."""
    done = subprocess.run(
        ["git", *words], input=told, text=True, cwd=HOME, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.strip()


def note(clone: str, act: str, *, path: str, content: str) -> None:
    """Writes a file and a line of the log, and commits both."""
    log = Path(HOME, "log", clone)
    for file in (Path(HOME, path), log):
        file.parent.mkdir(parents=True, exist_ok=True)
    Path(HOME, path).write_text(content)
    before = log.read_text() if log.exists() else ""
    log.write_text(added_to(before, act, clone, datetime.now(UTC).isoformat(timespec="seconds")))
    git("add", "--", path, f"log/{clone}")
    git("commit", "--quiet", "--message", f"{clone}: {act}")


def _folder(name: str) -> dict[str, str]:
    folder = Path(HOME, name)
    return {one.name: one.read_text() for one in folder.iterdir()} if folder.is_dir() else {}


def take(clone: str, wanted: str | None) -> dict[str, str] | None:
    """Takes a task by a commit, or goes on with the one that it has."""
    tasks, taken, done = _folder("tasks"), _folder("taken"), _folder("results")
    found = open_task(list(tasks), taken, list(done), clone, wanted)
    if found is not None and found not in taken:
        note(clone, f"took {found}", path=f"taken/{found}", content=f"{clone}\n")
    return None if found is None else {"id": found, "text": tasks[found]}


class Status(http.server.BaseHTTPRequestHandler):
    """Answers who it is and where its notebook stands. It serves no file."""

    def do_GET(self) -> None:
        known = self.path == "/healthz"
        body = json.dumps({"clone": self.server.clone, "head": git("rev-parse", "HEAD")} if known else {})  # type: ignore[attr-defined]
        self.send_response(200 if known else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words: object) -> None:
        """Says nothing: each request would be a line."""


def serve(clone: str) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Status)
    server.clone = clone  # type: ignore[attr-defined]
    server.serve_forever()


def not_its_own(status: str, path: str, clone: str) -> str | None:
    """Says why a clone may not change a file in this way, by git's letter for it; None: it may."""
    kind, _, name = path.partition("/")
    if kind in ("log", "clones") and name not in (clone, f"{clone}.json"):
        return f"{path} belongs to another than {clone}"
    if kind in ("tasks", "taken", "results") and status != "A":
        return f"{path} is there already, and stays as it is"
    return None


def hook(ref: str, old: str, new: str, clone: str) -> str | None:
    """Says why the meeting refuses a push; None: it takes it."""
    if ref != "refs/heads/main":
        return None

    def show(commit: str, path: str) -> str:
        found = subprocess.run(
            ["git", "show", f"{commit}:{path}"], capture_output=True, text=True, check=False
        )
        return found.stdout if found.returncode == 0 else ""

    if not old.strip("0"):
        return None
    words = ["git", "diff", "--name-status", "-z", "--no-renames", old, new]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")
    for status, path in zip(told[::2], told[1::2], strict=False):
        if (why := not_its_own(status, path, clone)) is not None:
            return why
        if not path.startswith("log/"):
            continue
        after = show(new, path)
        if not after.startswith(show(old, path)):
            return f"{path} was changed otherwise than by adding lines"
        if (fault := fault_of(after, path.rpartition("/")[2])) is not None:
            return f"{path}: {fault}"
    return None


def main(words: Sequence[str]) -> None:
    match words:
        case ["take", clone, *wanted]:
            print(json.dumps(take(clone, wanted[0] if wanted else None)))
        case ["finish", clone, task]:
            note(clone, f"finished {task}", path=f"results/{task}", content=sys.stdin.read())
        case ["put", clone, task]:
            note(clone, f"put {task}", path=f"tasks/{task}", content=sys.stdin.read())
        case ["note", clone, path, act]:
            note(clone, act, path=path, content=sys.stdin.read())
        case ["serve", clone]:
            serve(clone)
        case ["hook", ref, old, new, clone]:
            if (why := hook(ref, old, new, clone)) is not None:
                sys.exit(f"refused: {why}")
        case _:
            sys.exit("take|finish|put|note|serve|hook")


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1:])

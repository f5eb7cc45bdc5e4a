"""What each of a language's five programs must do, before anybody says that the language runs here."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.work.languages.table import Language

# What `stdin` is given, and what `exit` ends with.
LINE = "ping"
EXIT_CODE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program went: what its compiler said if that refused it, what it did itself otherwise."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    refused: bool = False


def stdin_of(program: str) -> str | None:
    return f"{LINE}\n" if program == "stdin" else None


def what_is_wrong(language: Language, program: str, ran: Ran) -> str | None:
    """None when it did what it must."""
    if program == "loop" and not ran.refused:
        return None if ran.timed_out else _told("it ended by itself", ran)
    if ran.timed_out:
        return _told("it did not end in time", ran)
    if program == "error":
        if ran.exit_code == 0 or ran.refused != (language.compile is not None):
            return _told("a broken program was let run", ran)
        return None if ran.stdout or ran.stderr else "it does not say what is broken"
    if ran.refused:
        return _told("it does not compile", ran)
    if program == "exit":
        return None if ran.exit_code == EXIT_CODE else _told(f"it ended with {ran.exit_code}", ran)
    wanted = f"hello from {language.name}" if program == "hello" else f"got: {LINE}"
    lines = [line.strip() for line in ran.stdout.splitlines()]
    if ran.exit_code != 0 or wanted not in lines:
        return _told(f"it ended with {ran.exit_code} and did not print {wanted!r}", ran)
    return None


def _told(what: str, ran: Ran) -> str:
    return f"{what}; stdout {ran.stdout[-200:]!r}, stderr {ran.stderr[-400:]!r}"

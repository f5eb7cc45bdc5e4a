"""Who comes first on the processor: seen from outside, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "import os, sys; print(os.nice(0), sys.getswitchinterval(), flush=True); input()"


def _seen(act: str, *, own_session: bool) -> tuple[list[str], str]:
    """Niceness and switch interval of a process after `act`, and what the kernel says of its session."""
    code = f"from sandboxer.kernel.fairness import {act}; {act}(); {SHOW}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=own_session,
    )
    assert process.stdout is not None
    said = process.stdout.readline().split()
    session = _session(str(process.pid))
    process.communicate("\n")
    return said, session


def _session(pid: str) -> str:
    """Empty where sessions are no groups, and of a process that belongs to the first of them, of init."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    words = autogroup.read_text().split() if autogroup.exists() else []
    return words[-1] if words else ""


def test_who_works_for_one_tenant_comes_last_and_its_session_too() -> None:
    [niceness, _], session = _seen("come_last", own_session=True)
    assert niceness == "10"
    assert session in ("10", "")


def test_the_loop_comes_first_and_threads_give_the_interpreter_back_soon() -> None:
    [niceness, interval], session = _seen("come_first", own_session=True)
    if niceness == "0":
        pytest.skip("this host lets nobody come first")
    assert (niceness, interval) == ("-10", "0.0005")
    assert session in ("-10", "")


def test_a_session_that_is_somebody_elses_is_left_as_it_is() -> None:
    # Whatever it is: the session of these tests may itself have been told to come last.
    before = _session("self")
    _, session = _seen("come_last", own_session=False)
    assert session == _session("self") == before

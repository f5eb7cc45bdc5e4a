"""`sandboxer session` as one types it: started, asked, put to sleep, woken, listed, ended."""

from __future__ import annotations

from tests.support.cli import Cli


def test_a_session_keeps_its_state_over_cells_and_sleep_until_it_is_ended(real_cli: Cli) -> None:
    session = real_cli("session", "create", "python", "--name", "notes", "--idle", "10m").out.strip()
    assert session.startswith("ses_")
    assert real_cli("session", "run", session, "x = 41").code == 0
    said = real_cli("session", "run", session, "print(x + 1)")
    assert (said.code, said.out) == (0, "42\n"), said
    piped = real_cli("session", "run", session, stdin=b"x += 1\nprint(x)\n")
    assert (piped.code, piped.out) == (0, "42\n"), piped
    wrong = real_cli("session", "run", session, "1 / 0")
    assert wrong.code == 1
    assert "ZeroDivisionError" in wrong.err
    listed = real_cli("session", "list", "--json").items
    assert [(one["id"], one["state"]) for one in listed if one["id"] == session] == [(session, "ready")]
    assert session in real_cli("session", "list").out
    assert real_cli("session", "freeze", session, "--json").json["state"] == "frozen"
    asleep = real_cli("session", "run", session, "x")
    assert asleep.code != 0
    assert real_cli("session", "thaw", session, "--json").json["state"] == "ready"
    assert real_cli("session", "run", session, "print(x)").out == "42\n"
    assert "notes" in real_cli("session", "show", session).out
    assert real_cli("session", "delete", session, "--json").json["state"] == "ended"
    assert session not in real_cli("session", "list").out
    assert real_cli("session", "run", session, "x").code != 0

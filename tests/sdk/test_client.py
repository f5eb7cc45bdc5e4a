"""The blocking client against a served platform."""

from __future__ import annotations

import io
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.errors import (
    AuthenticationFailed,
    BrokenAnswer,
    Conflict,
    InvalidRequest,
    NotFound,
    Unreachable,
)
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire.processes import ExecExit
from tests.support.platforms import Up

ABSENT = "sbx_" + "0" * 26


def test_a_sandbox_is_made_used_and_gone_after_the_with_block(client: Sandboxer) -> None:
    with client.create(labels={"team": "search"}, ttl="10m") as sandbox:
        assert sandbox.info.state == "ready"
        assert sandbox.exec("echo hi").stdout == "hi\n"
        assert [one.id for one in client.list(labels={"team": "search"})] == [sandbox.id]
    assert client.get(sandbox.id).info.state == "destroyed"


def test_a_failing_command_is_a_result_and_no_error(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo oops >&2; exit 3")
    assert (result.exit_code, result.stderr) == (3, "oops\n")


def test_a_stream_gives_pieces_and_ends_with_the_exit(sandbox: Sandbox) -> None:
    pieces = list(sandbox.stream("echo one; echo two >&2; exit 4"))
    reported = {
        stream: b"".join(p.data for p in pieces if isinstance(p, Chunk) and p.stream == stream)
        for stream in ("stdout", "stderr")
    }
    assert reported == {"stdout": b"one\n", "stderr": b"two\n"}
    assert isinstance(pieces[-1], ExecExit)
    assert pieces[-1].exit_code == 4


def test_files_go_in_and_come_out_unchanged(sandbox: Sandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    source, back = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    sent: list[int] = []
    sandbox.files.write("/data/blob", source, progress=sent.append)
    assert sum(sent) == len(data)
    assert sandbox.files.download("/data/blob", back) == len(data)
    assert back.read_bytes() == data
    assert sandbox.files.read("/data/blob", offset=10, length=5) == data[10:15]
    assert sandbox.files.stat("/data/blob").size == len(data)


def test_an_unknown_stream_is_spooled_hashed_and_sent(sandbox: Sandbox) -> None:
    sandbox.files.write("/s", io.BytesIO(b"x" * 9_000_000))
    assert sandbox.files.stat("/s").size == 9_000_000


def test_names_that_are_no_text_travel_both_ways(sandbox: Sandbox) -> None:
    name = "/data/caf\udce9"
    sandbox.files.write(name, b"1")
    assert sandbox.files.read(name) == b"1"
    sandbox.files.move(name, "/data/b\udcff")
    assert sandbox.files.read("/data/b\udcff") == b"1"


def test_folders_are_listed_made_moved_and_removed(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("/a/b")
    sandbox.files.write("/a/b/c", "text")
    sandbox.files.move("/a/b/c", "/a/d")
    assert sorted(info.name for info in sandbox.files.list("/a")) == ["b", "d"]
    sandbox.files.remove("/a", recursive=True)
    with pytest.raises(NotFound) as caught:
        sandbox.files.stat("/a")
    assert caught.value.code == "path_not_found"


def test_background_processes_are_started_fed_waited_for_and_ended(sandbox: Sandbox) -> None:
    process = sandbox.processes.start("cat", has_stdin=True, tag="mine")
    assert process.process_id in [one.process_id for one in sandbox.processes.list()]
    sandbox.processes.write_stdin(process.process_id, b"through\n", close=True)
    assert sandbox.processes.wait(process.process_id, timeout_s=10).exit_code == 0
    pieces = list(sandbox.processes.output(process.process_id))
    assert b"".join(p.data for p in pieces if isinstance(p, Chunk)) == b"through\n"
    sandbox.processes.end(process.process_id)


def test_events_are_replayed_from_where_one_left_off(sandbox: Sandbox) -> None:
    kinds = [(event.id, event.kind) for event in sandbox.events(follow=False)]
    assert [kind for _, kind in kinds][-1].endswith("ready")
    rest = [event.id for event in sandbox.events(after=kinds[0][0], follow=False)]
    assert rest == [number for number, _ in kinds[1:]]


def test_a_new_name_and_labels_are_kept_and_told_as_an_event(sandbox: Sandbox) -> None:
    sandbox.change(name="nightly", labels={"team": "search", "draft": "1"})
    assert sandbox.change(labels={"draft": None}).labels == {"team": "search"}
    assert sandbox.change(name="nightly").name == "nightly"
    told = [event.data for event in sandbox.events(follow=False) if event.kind == "sandbox.changed"]
    assert told == [
        {"name": "nightly", "labels": {"team": "search", "draft": "1"}},
        {"labels": {"team": "search"}},
    ]


def test_freezing_and_thawing_change_the_state(sandbox: Sandbox) -> None:
    assert sandbox.freeze().state == "frozen"
    assert sandbox.thaw().state == "ready"
    assert sandbox.stop().state == "stopped"
    assert sandbox.resume().state == "ready"


def test_problems_become_typed_errors_that_say_whose_fault_and_what_next(
    client: Sandboxer, sandbox: Sandbox
) -> None:
    with pytest.raises(NotFound) as absent:
        client.get(ABSENT)
    assert (absent.value.code, absent.value.fault) == ("not_found", "caller")
    assert absent.value.next_step
    assert absent.value.request_id
    with pytest.raises(InvalidRequest):
        client.create(ttl="soon")
    sandbox.stop()
    with pytest.raises(Conflict) as state:
        sandbox.freeze()
    assert state.value.code == "illegal_transition"


def test_a_wrong_key_is_refused_as_such(up: Up) -> None:
    stranger = Sandboxer(public_key="sbx-pk-none", secret_key="none", url=up.url)
    with stranger, pytest.raises(AuthenticationFailed):
        list(stranger.list())


def test_a_client_whose_clock_is_wrong_learns_the_servers(up: Up) -> None:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        client._line.signer._offset_s = -4000.0
        assert list(client.list(labels={"none": "such"})) == []
        assert abs(client._line.signer._offset_s) < 10


def test_nobody_listening_is_unreachable(up: Up) -> None:
    client = Sandboxer(owner_file=up.owner_file, url="http://127.0.0.1:1")
    with client, pytest.raises(Unreachable):
        list(client.list())


def test_the_same_idempotency_key_gives_the_same_sandbox(client: Sandboxer) -> None:
    first = client.create(idempotency_key="same-key-0001")
    again = client.create(idempotency_key="same-key-0001")
    assert first.id == again.id
    with pytest.raises(Conflict):
        client.create(idempotency_key="same-key-0001", name="other")
    first.destroy()


def test_keys_are_made_used_and_revoked(client: Sandboxer, up: Up) -> None:
    key = client.keys.create("laptop", "team-a")
    with Sandboxer(public_key=key.public_key, secret_key=key.secret_key, url=up.url) as other:
        assert list(other.list()) == []
        client.keys.revoke(key.public_key)
        with pytest.raises(AuthenticationFailed):
            list(other.list())


def test_an_answer_without_an_end_is_not_held(up: Up) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, _ = listening.accept()
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(b"HTTP/1.1 418 No\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                client.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    threading.Thread(target=answer, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    lost = Sandboxer(owner_file=up.owner_file, url=url)
    with listening, lost, pytest.raises(BrokenAnswer, match="longer than"):
        lost.get(ABSENT)

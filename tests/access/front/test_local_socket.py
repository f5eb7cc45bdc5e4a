"""Users of this machine come by a socket: those of one group, each for himself, and nobody as the owner."""

from __future__ import annotations

import grp
import hashlib
import http.client
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.namespaces.uids import UidClaims
from sandboxer.edges.front.acceptor import listen_for_users
from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.settings import load_settings
from tests.support.background import Host
from tests.support.http.signed import Credentials

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users")
# Of every Debian; nobody is in it.
GROUP = "staff"
GID = grp.getgrnam(GROUP).gr_gid
# Users of every Debian.
GAMES, ANNA, BEN = 5, 6, 7
STRANGER, SUBORDINATE, OF_A_SANDBOX, NOBODY = 54323, 100_001, 100_065_536, 65534
ASK = """
import http.client, json, socket, sys
path, method, target, headers, body = json.load(sys.stdin)
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
try:
    connection.sock.connect(path)
except OSError as error:
    print(json.dumps([0, type(error).__name__]))
    sys.exit()
if body is not None:
    body, headers = json.dumps(body), {**headers, "content-type": "application/json"}
connection.request(method, target, body, headers)
answer = connection.getresponse()
print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below /run, where only root can write, as the socket wants it."""
    made = Path(f"/run/sandboxer-test-{os.getpid()}")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def at(host: Host, folder: Path) -> Path:
    path = folder / "api.sock"
    accounts = json.dumps({"games": "players"})
    host.environment |= {
        "SANDBOXER_SOCKET_GROUP": GROUP,
        "SANDBOXER_SOCKET_PATH": str(path),
        "SANDBOXER_SOCKET_ACCOUNTS": accounts,
    }
    begun = host("up", "-d")
    assert begun.returncode == 0, begun.stderr
    assert f"{path}  (for users in the group {GROUP})" in begun.stdout
    return path


def ask(
    uid: int,
    path: Path,
    method: str,
    target: str,
    body: object = None,
    *,
    group: int = GID,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """As another user of this machine, in a process of its own."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={group}"]
    asked = json.dumps([str(path), method, target, headers or {}, body])
    # A Python that others may read.
    words = [*become, "/usr/bin/python3", "-c", ASK]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    status, answer = json.loads(done.stdout)
    return status, answer


def test_members_of_the_group_have_accounts_of_their_own_and_others_none(at: Path, host: Host) -> None:
    found = at.lstat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert (found.st_uid, found.st_gid) == (0, GID)
    status, made = ask(ANNA, at, "POST", "/v1/sandboxes", {"name": "mine"})
    assert status == 201, made
    assert ask(ANNA, at, "GET", "/v1/accounts/me")[1]["account"]["id"] == f"uid-{ANNA}"
    listed = ask(ANNA, at, "GET", "/v1/sandboxes")[1]["sandboxes"]
    assert [one["id"] for one in listed] == [made["id"]]
    # Each for himself.
    assert ask(BEN, at, "GET", "/v1/sandboxes")[1]["sandboxes"] == []
    assert ask(BEN, at, "GET", f"/v1/sandboxes/{made['id']}")[0] == 404
    assert ask(BEN, at, "DELETE", f"/v1/sandboxes/{made['id']}")[0] == 404
    # Who is not in the group does not even connect.
    assert ask(STRANGER, at, "GET", "/v1/sandboxes", group=STRANGER) == (0, "PermissionError")
    # Neither does a sandbox that was given the socket, nor a user of another namespace, nor one of the 65,536
    # that a member may become in a user namespace of his own, keeping his groups.
    for uid in (OF_A_SANDBOX, NOBODY, SUBORDINATE):
        status, refused = ask(uid, at, "GET", "/v1/sandboxes")
        assert (status, refused["reason"]) == (401, "not_a_user"), refused
    # The operator's word for one of them.
    assert ask(GAMES, at, "GET", "/v1/accounts/me")[1]["account"]["id"] == "players"
    # Anna may be shut out by the operator as anybody.
    owner = Credentials(*owner_key(host))
    close = f"/v1/accounts/uid-{ANNA}/suspend"
    asked = json.dumps({"reason": "test"}).encode()
    answer = signed(host, owner, "POST", close, asked)
    assert answer == 200
    assert ask(ANNA, at, "GET", "/v1/sandboxes")[0] == 403


def test_nobody_is_the_owner_by_the_socket(at: Path, host: Host) -> None:
    for uid in (0, ANNA):
        for method, target, body in (
            ("GET", "/v1/accounts", None),
            ("POST", "/v1/accounts", {"reason": "mine"}),
            ("POST", f"/v1/accounts/uid-{ANNA}/adjust", {"sats": 1, "id": "x", "reason": "mine"}),
            ("POST", "/v1/host/reap-stale", {}),
        ):
            status, _ = ask(uid, at, method, target, body)
            assert status in (403, 404, 405, 422), (uid, target, status)
            assert status != 422 or method == "POST"
        assert ask(uid, at, "GET", "/v1/accounts")[0] == 403
    # What a request says of itself changes nothing.
    lies = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "root", "Remote-User": "root"}
    assert ask(ANNA, at, "GET", "/v1/accounts/me", headers=lies)[1]["account"]["id"] == f"uid-{ANNA}"
    for claim in ("Bearer unix:0", "Bearer owner", f"Bearer unix:{BEN}"):
        status, _ = ask(ANNA, at, "GET", "/v1/accounts/me", headers={"Authorization": claim})
        assert status == 401, claim
    assert ask(ANNA, at, "GET", "/metrics")[0] in (403, 404)
    # Nothing is made that would outlive the membership.
    for target, body in (
        ("/v1/keys", {"name": "mine"}),
        ("/v1/ssh-keys", {"name": "mine", "public_key": SSH_KEY}),
        ("/v1/keys/delegated", {"name": "child", "scopes": ["sandboxes:create"]}),
        ("/v1/webhooks", {"url": "https://elsewhere.example/hears"}),
    ):
        status, refused = ask(ANNA, at, "POST", target, body)
        assert (status, refused.get("reason")) == (403, "by_socket"), refused
    # The owner's key is the owner's key, by whatever way it comes.
    public, secret = owner_key(host)
    head = Credentials(public, secret).head("GET", "/v1/accounts", EMPTY)
    assert ask(ANNA, at, "GET", "/v1/accounts", headers=head)[0] == 200


def test_the_command_line_needs_no_key_there(at: Path, host: Host) -> None:
    listed = subprocess.run(
        [
            sys.executable,
            "-m",
            "sandboxer.edges.cli.main",
            "create",
            "--profile",
            "profile.agent-dev",
            "--json",
        ],
        env={"PATH": "/usr/bin:/bin", "SANDBOXER_URL": f"unix://{at}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    # By the socket root is a user as any other.
    (mine,) = ask(0, at, "GET", "/v1/sandboxes")[1]["sandboxes"]
    assert mine["id"] == json.loads(listed.stdout)["id"]
    assert ask(0, at, "GET", "/v1/accounts/me")[1]["account"]["id"] == "uid-0"


def test_its_place_is_roots_alone(folder: Path, tmp_path: Path) -> None:
    for place in (tmp_path, Path("/tmp"), Path("/var/tmp")):
        with pytest.raises(InvalidRequest, match="only root"), listen_for_users(place / "a.sock", GROUP):
            pass
    with (
        pytest.raises(InvalidRequest, match="no group"),
        listen_for_users(folder / "a.sock", "no-such-group"),
    ):
        pass
    folder.mkdir(mode=0o755, exist_ok=True)
    file, link, path = folder / "file", folder / "link", folder / "api.sock"
    file.write_text("kept")
    link.symlink_to(file)
    for taken in (file, link):
        with pytest.raises(InvalidRequest, match="no socket"), listen_for_users(taken, GROUP):
            pass
    assert file.read_text() == "kept"
    elsewhere = folder / "elsewhere"
    elsewhere.symlink_to(tmp_path)
    with pytest.raises(InvalidRequest, match="only root"), listen_for_users(elsewhere / "a.sock", GROUP):
        pass
    with listen_for_users(path, GROUP):
        with pytest.raises(Conflict, match="another server"), listen_for_users(path, GROUP):
            pass
        assert path.is_socket()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listen_for_users(path, GROUP):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o660


def test_members_get_through_the_folder_that_claims_of_uids_are_in(folder: Path) -> None:
    """Both are in /run/sandboxer; hosts have it from versions that kept it to root."""
    folder.mkdir(mode=0o700)
    claims = UidClaims(folder)
    try:
        with listen_for_users(folder / "api.sock", GROUP) as listening:
            become = ["setpriv", f"--reuid={ANNA}", f"--regid={ANNA}", f"--groups={GID}"]
            connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
            words = [*become, "/usr/bin/python3", "-c", connect, str(folder / "api.sock")]
            assert subprocess.run(words, check=False, cwd="/").returncode == 0
            assert listening.accept()
    finally:
        claims.close()
    assert stat.S_IMODE((folder / "uids").lstat().st_mode) == 0o600


def test_no_setting_makes_a_user_the_owner() -> None:
    with pytest.raises(InvalidRequest, match="owner"):
        load_settings({"SANDBOXER_SOCKET_ACCOUNTS": '{"anna": "owner"}'})
    assert load_settings({}).socket_group is None


SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGS47zTnfetaTs2eFvKCK/5CToLMj9qrQZtlxDuvREiu"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def owner_key(host: Host) -> tuple[str, str]:
    known = json.loads((host.state / "owner.json").read_text())
    return known["public_key"], known["secret_key"]


def signed(host: Host, owner: Credentials, method: str, target: str, body: bytes) -> int:
    url = json.loads((host.state / "owner.json").read_text())["url"].removeprefix("http://")
    head = owner.head(method, target, hashlib.sha256(body).hexdigest())
    connection = http.client.HTTPConnection(url, timeout=30)
    connection.request(method, target, body, {**head, "content-type": "application/json"})
    return connection.getresponse().status

"""What looks like a secret, and where is looked for it: decisions alone."""

from __future__ import annotations

import pytest

from sandboxer.backends.guest import FileInfo, FileKind
from sandboxer.kernel.errors import Conflict
from sandboxer.sandboxes.exposure import (
    Exposure,
    Finding,
    Inspect,
    Kind,
    demand,
    looks_secret,
    may_enter,
    may_hold_key,
    may_read,
    served_folders,
)

SECRET = [
    "/workspace/.env",
    "/workspace/.env.production",
    "/root/.netrc",
    "/root/.git-credentials",
    "/root/.aws/credentials",
    "/root/.ssh/id_ed25519",
    "/srv/credentials.json",
    "/root/.claude/.credentials.json",
    "/srv/api_key.txt",
    "/srv/token",
    "/srv/ACCESS-TOKEN.json",
    "/srv/secrets.yaml",
    "/srv/passwords.txt",
    "/root/.docker/config.json",
    "/srv/store.p12",
    "/root/.kube/config",
    "/srv/github_token",
    "/srv/owner.json",
]
ORDINARY = [
    "/workspace/.env.example",
    "/workspace/app.py",
    "/workspace/token.py",
    "/srv/tokenizer.json",
    "/srv/keys.json",
    "/root/.ssh/id_ed25519.pub",
    "/srv/config.json",
    "/root/.gitconfig",
    "/srv/secret-santa.html",
    "/srv/monkey.txt",
    "/srv/special_tokens_map.json",
    "/srv/fullchain.pem",
]


@pytest.mark.parametrize("path", SECRET)
def test_a_file_that_is_named_as_secrets_are_looks_secret(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_file_does_not(path: str) -> None:
    assert not looks_secret(path)


def test_a_certificate_and_a_key_are_told_apart_by_what_they_say() -> None:
    assert may_hold_key("/srv/fullchain.pem")
    assert may_hold_key("/srv/server.KEY")
    assert not may_hold_key("/srv/server.txt")


def info(kind: FileKind, mode: int) -> FileInfo:
    return FileInfo(path="/a", kind=kind, size=1, mode=mode, uid=0, gid=0, modified_at=0)


def test_the_right_of_others_decides() -> None:
    assert may_read(info(FileKind.FILE, 0o644))
    assert not may_read(info(FileKind.FILE, 0o640))
    assert not may_read(info(FileKind.SYMLINK, 0o777))
    assert may_enter(info(FileKind.DIRECTORY, 0o711))
    assert not may_enter(info(FileKind.DIRECTORY, 0o744))


def test_folders_within_others_and_the_systems_own_are_not_looked_at_twice() -> None:
    found = served_folders(["/workspace/site", "/srv/www/", "/srv/www/a", "/proc/7", "/usr/bin", "home"])
    assert found == ["/home", "/root", "/srv/www", "/workspace"]
    assert served_folders(["/"]) == ["/"]


def test_only_who_asks_for_it_is_refused_and_learns_the_paths() -> None:
    found = Exposure(
        findings=[Finding(path=f"/srv/{n}.p12", kind=Kind.SECRET, mode=0o644) for n in range(7)],
        folders=["/srv"],
        looked_at=9,
    )
    demand(found, Inspect.WARN)
    demand(Exposure(findings=(), folders=(), looked_at=0, why="it is stopped"), Inspect.REFUSE)
    with pytest.raises(Conflict, match=r"/srv/4\.p12 and 2 more") as refused:
        demand(found, Inspect.REFUSE)
    assert refused.value.facts["reason"] == "exposed"
    assert len(refused.value.facts["findings"]) == 7  # type: ignore[arg-type]

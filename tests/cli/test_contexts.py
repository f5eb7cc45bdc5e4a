"""`login` and `context`: several platforms, and the key of each."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from sandboxer.sdk import MissingCredentials
from sandboxer.sdk.contexts import Context, Contexts, OwnFiles
from sandboxer.sdk.credentials import find_credentials
from tests.support.cli import Cli
from tests.support.platforms import Up

NAMES = ("SANDBOXER_CREDENTIALS", "SANDBOXER_URL", "SANDBOXER_STATE_DIR")


@pytest.fixture
def person(cli: Cli, tmp_path: Path) -> Cli:
    """Somebody who has nothing but a home."""
    rest = {name: value for name, value in cli.environment.items() if name not in NAMES}
    return Cli(rest | {"HOME": str(tmp_path), "SANDBOXER_STATE_DIR": ""})


def key_of(cli: Cli, account: str) -> dict[str, str]:
    made: dict[str, str] = cli("key", "create", "k", "--account", account, "--open", "--json").json
    return made


def logged_in(person: Cli, cli: Cli, up: Up, name: str) -> dict[str, str]:
    key = key_of(cli, name)
    lines = f"{key['public_key']}\n{key['secret_key']}\n".encode()
    said = person("login", up.url, "--name", name, stdin=lines)
    assert said.code == 0, said.err
    return key


def test_a_key_is_tried_kept_for_its_owner_alone_and_used(
    person: Cli, cli: Cli, up: Up, tmp_path: Path
) -> None:
    key = logged_in(person, cli, up, "team-a")
    file = tmp_path / ".config/sandboxer/contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    made = person("create", "--name", "theirs", "--json")
    assert made.code == 0, made.err
    assert person("show", "theirs", "--json").json["id"] == made.json["id"]
    shown = person("context", "show", "--json")
    assert (shown.json["name"], shown.json["key"]) == ("team-a", key["public_key"])
    for words in (("context", "show"), ("context", "list"), ("context", "list", "--json")):
        assert key["secret_key"] not in person(*words).out
    person("delete", made.json["id"])


def test_there_are_several_and_one_is_in_use(person: Cli, cli: Cli, up: Up) -> None:
    logged_in(person, cli, up, "one")
    logged_in(person, cli, up, "two")
    mine = person("create", "--name", "of-two", "--json").json["id"]
    assert person("--context", "one", "show", mine).code == 4
    assert person("--context", "two", "show", mine).code == 0
    assert person("context", "use", "one").code == 0
    assert person("show", "of-two").code == 4
    assert person("show", "of-two", SANDBOXER_CONTEXT="two").code == 0
    in_use = [one["name"] for one in person("context", "list", "--json").json["items"] if one["in_use"]]
    assert in_use == ["one"]
    assert person("--context", "two", "delete", mine).code == 0
    assert person("context", "delete", "one").code == 0
    assert person("context", "show", "--json").json["name"] == "local"
    unknown = person("--context", "three", "list")
    assert (unknown.code, "two" in unknown.err) == (3, True)


def test_a_bearer_token_logs_in_too(person: Cli, cli: Cli, up: Up) -> None:
    key = key_of(cli, "bearers")
    token = cli("key", "bearer", key["public_key"], "--json").json["bearer_token"]
    assert person("login", up.url, "--name", "b", stdin=f"{token}\n".encode()).code == 0
    assert person("list").code == 0
    away = person("login", "http://sandboxes.example", stdin=f"{token}\n".encode())
    assert (away.code, "https" in away.err) == (3, True)
    # Nor does a token of the environment go there.
    away = person("list", SANDBOXER_URL="http://sandboxes.example", SANDBOXER_API_KEY=token)
    assert (away.code, "https" in away.err) == (3, True)


def test_a_key_that_is_not_taken_is_not_kept(person: Cli, cli: Cli, up: Up, tmp_path: Path) -> None:
    key = key_of(cli, "wrong")
    wrong = key["secret_key"][:-4] + "0000"
    said = person("login", up.url, stdin=f"{key['public_key']}\n{wrong}\n".encode())
    assert said.code == 3
    assert not (tmp_path / ".config/sandboxer/contexts.json").exists()
    assert person("login", up.url, stdin=b"hunter2\n").code == 1


def test_the_environment_wins_and_half_a_key_is_an_error(person: Cli, cli: Cli, up: Up) -> None:
    logged_in(person, cli, up, "low")
    other = key_of(cli, "high")
    env = {"SANDBOXER_PUBLIC_KEY": other["public_key"], "SANDBOXER_URL": up.url}
    assert person("list", **env).code == 3
    mine = person("create", "--json", **env, SANDBOXER_SECRET_KEY=other["secret_key"]).json["id"]
    assert person("show", mine).code == 4
    assert person("delete", mine, **env, SANDBOXER_SECRET_KEY=other["secret_key"]).code == 0


def test_a_key_goes_to_no_other_address(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "SANDBOXER_CONFIG_DIR": str(tmp_path / "own")}
    files = OwnFiles(tmp_path / "own")
    Contexts(files).add(Context("p", "https://p.example", secret="sk_x"), may_use_keyring=False)
    assert find_credentials(environ=env).bearer_token == "sk_x"
    owner = tmp_path / "owner.json"
    owner.write_text(json.dumps({"public_key": "sbx-pk-o", "secret_key": "s"}))
    here = env | {"SANDBOXER_CREDENTIALS": str(owner)}
    assert find_credentials(environ=here).public_key == "sbx-pk-o"
    elsewhere = env | {"SANDBOXER_URL": "https://q.example", "SANDBOXER_CONTEXT": "p"}
    with pytest.raises(MissingCredentials, match=r"for https://p\.example"):
        find_credentials(environ=elsewhere)
    # Nobody named it: it is as if there were none.
    with pytest.raises(MissingCredentials, match=r"owner\.json"):
        find_credentials(environ=env | {"SANDBOXER_URL": "https://q.example"})


class Ring(KeyringBackend):
    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.is_locked = False
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        if self.is_locked:
            raise KeyringLocked
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


@pytest.fixture
def ring() -> Iterator[Ring]:
    before = keyring.get_keyring()
    made = Ring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_where_a_keyring_works_no_file_holds_the_secret(ring: Ring, tmp_path: Path) -> None:
    files = OwnFiles(tmp_path)
    kept = Contexts(files).add(Context("p", "https://p.example", public_key="sbx-pk-p", secret="hush"))
    assert kept.is_in_keyring
    assert "hush" not in (tmp_path / "contexts.json").read_text()
    found = find_credentials(environ={"SANDBOXER_CONFIG_DIR": str(tmp_path)})
    assert (found.public_key, found.secret_key) == ("sbx-pk-p", "hush")
    Contexts(files).delete("p")
    assert not ring.kept


def test_a_keyring_that_lost_the_key_says_how_to_log_in_again(ring: Ring, tmp_path: Path) -> None:
    Contexts(OwnFiles(tmp_path)).add(Context("p", "https://p.example", secret="hush"))
    ring.kept.clear()
    with pytest.raises(MissingCredentials, match="keyring"):
        find_credentials(environ={"SANDBOXER_CONFIG_DIR": str(tmp_path)})


def test_a_keyring_that_is_locked_or_empty_keeps_nobody_from_going_on(ring: Ring, tmp_path: Path) -> None:
    files = OwnFiles(tmp_path)
    Contexts(files).add(Context("p", "https://p.example", secret="hush"))
    ring.is_locked = True
    with pytest.raises(MissingCredentials, match="keyring"):
        find_credentials(environ={"SANDBOXER_CONFIG_DIR": str(tmp_path)})
    # Who logs in elsewhere under the same name leaves no secret behind.
    Contexts(files).add(Context("p", "https://q.example", secret="new"))
    assert list(ring.kept.values()) == ["new"]
    ring.kept.clear()
    Contexts(files).delete("p")
    assert Contexts(files).current == "local"


def test_a_link_that_somebody_laid_beside_it_gets_no_key(tmp_path: Path) -> None:
    """In a folder that others can write to, the name of the file that becomes it could be guessed."""
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    folder = tmp_path / "own"
    folder.mkdir(mode=0o777)
    (folder / f".contexts.json.{os.getpid()}").symlink_to(theirs)
    Contexts(OwnFiles(folder)).add(Context("p", "https://p.example", secret="hush"), may_use_keyring=False)
    assert theirs.read_text() == ""
    assert stat.S_IMODE((folder / "contexts.json").lstat().st_mode) == 0o600
    assert not (folder / "contexts.json").is_symlink()


def test_contexts_of_another_user_are_not_believed(tmp_path: Path) -> None:
    files = OwnFiles(tmp_path)
    Contexts(files).add(Context("p", "https://p.example", secret="hush"), may_use_keyring=False)
    assert Contexts(files).current == "p"
    os.chown(tmp_path / "contexts.json", 12345, 12345)
    assert Contexts(files).current == "local"

from __future__ import annotations

import asyncio
import json
import logging
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from sandboxer.identity.dependencies import ensure_owner
from sandboxer.identity.keys import OWNER_ACCOUNT, Keys, generate, is_public_key, is_secret_key
from sandboxer.identity.seal import Seal, open_seal
from sandboxer.kernel.errors import Broken, Conflict, NotFound
from sandboxer.observe.events import Events
from sandboxer.store.engine import Store
from tests.support.identity import StillClock

SEAL = Seal(b"k" * 32)


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, SEAL, clock=StillClock())


async def test_a_new_key_has_the_published_form_and_takes_v2_only(keys: Keys) -> None:
    new = await keys.create("acc", "laptop")
    assert is_public_key(new.public_key)
    assert is_secret_key(new.secret_key)
    assert new.public_key.startswith("sbx-pk-")
    assert new.secret_key.startswith("sbx-sk-")
    found = await keys.find(new.public_key)
    assert found is not None
    assert found.secret == new.secret_key.encode()
    assert (found.caller.account, found.caller.is_owner, found.caller.accepts_v1) == ("acc", False, False)


async def test_secrets_are_sealed_in_the_database(keys: Keys, store: Store) -> None:
    new = await keys.create("acc", "laptop")
    query = text("SELECT sealed_secret FROM keys")
    sealed = bytes(await store.read(lambda conn: conn.execute(query).scalar()))
    assert new.secret_key.encode() not in sealed
    assert new.secret_key[7:].encode() not in sealed
    assert SEAL.open(sealed, context=new.public_key).decode() == new.secret_key


async def test_the_event_of_a_new_key_does_not_tell_its_secret(keys: Keys, store: Store) -> None:
    new = await keys.create("acc", "laptop", actor="sbx-pk-owner")
    (event,) = await Events(store).page(new.public_key)
    assert (event.kind, event.actor) == ("key.created", "sbx-pk-owner")
    assert "sbx-sk-" not in repr(event)


async def test_the_wrong_master_key_is_named(keys: Keys, store: Store) -> None:
    new = await keys.create("acc", "laptop")
    with pytest.raises(Broken, match=r"master\.key"):
        await Keys(store, Seal(b"x" * 32)).find(new.public_key)


async def test_a_sealed_secret_moved_to_another_key_does_not_open(keys: Keys, store: Store) -> None:
    mine, other = await keys.create("mine", "a"), await keys.create("other", "b")
    swap = text(
        "UPDATE keys SET sealed_secret = (SELECT k.sealed_secret FROM keys k WHERE k.public_key = :mine)"
        " WHERE public_key = :other"
    )
    await store.write(lambda conn: conn.execute(swap, {"mine": mine.public_key, "other": other.public_key}))
    with pytest.raises(Broken):
        await keys.find(other.public_key)


async def test_a_revoked_key_is_not_found_and_revoking_twice_is_no_error(keys: Keys) -> None:
    new = await keys.create("acc", "laptop")
    assert await keys.find(new.public_key)
    await keys.revoke(new.public_key)
    assert await keys.find(new.public_key) is None
    await keys.revoke(new.public_key)
    (listed,) = await keys.list("acc")
    assert listed.revoked_at is not None
    with pytest.raises(NotFound):
        await keys.revoke("sbx-pk-" + "0" * 26)


async def test_a_find_racing_a_revocation_does_not_keep_the_key_alive(keys: Keys) -> None:
    for _ in range(20):
        new = await keys.create("acc", "laptop")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(keys.find(new.public_key))
            group.create_task(keys.revoke(new.public_key))
        assert await keys.find(new.public_key) is None


async def test_a_revocation_by_another_process_takes_hold_within_a_minute(keys: Keys, store: Store) -> None:
    new = await keys.create("acc", "laptop")
    assert await keys.find(new.public_key)
    await Keys(store, SEAL).revoke(new.public_key)
    keys._clock.moment += timedelta(seconds=61)  # type: ignore[attr-defined]
    assert await keys.find(new.public_key) is None


async def test_finding_a_known_key_does_not_ask_the_database(keys: Keys, store: Store) -> None:
    new = await keys.create("acc", "laptop")
    await keys.find(new.public_key)
    await store.close()
    assert await keys.find(new.public_key)


async def test_keys_are_listed_by_account(keys: Keys) -> None:
    await keys.create("a", "one")
    await keys.create("b", "two")
    assert [key.name for key in await keys.list("b")] == ["two"]
    assert {key.name for key in await keys.list()} == {"one", "two"}


async def test_the_first_start_writes_the_owners_file_for_nobody_else(
    keys: Keys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "owner.json"
    public_key = await ensure_owner(keys, path, url="http://127.0.0.1:7777")
    content = json.loads(path.read_text())
    assert content.keys() == {"public_key", "secret_key", "url"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = await keys.find(public_key)
    assert found is not None
    assert found.secret == content["secret_key"].encode()
    assert (found.caller.is_owner, found.caller.accepts_v1) == (True, True)
    assert "sbx-sk-" not in caplog.text
    assert [file.name for file in tmp_path.iterdir() if "owner" in file.name] == ["owner.json"]


async def test_later_starts_keep_the_key_and_follow_the_url(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "owner.json"
    first = await ensure_owner(keys, path, url="http://127.0.0.1:1")
    path.chmod(0o644)
    assert await ensure_owner(keys, path, url="http://127.0.0.1:2") == first
    assert json.loads(path.read_text())["url"] == "http://127.0.0.1:2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(await keys.list()) == 1


async def test_a_lost_owners_file_is_written_again_from_the_database(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "owner.json"
    await ensure_owner(keys, path, url="u")
    content = path.read_text()
    path.unlink()
    await ensure_owner(keys, path, url="u")
    assert path.read_text() == content


async def test_a_new_database_adopts_the_key_of_the_owners_file(
    keys: Keys, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "owner.json"
    first = await ensure_owner(keys, path, url="u")
    await store.write(lambda conn: conn.execute(text("DELETE FROM keys")))
    again = Keys(store, SEAL)
    assert await ensure_owner(again, path, url="u") == first
    assert (await again.find(first)).caller.is_owner  # type: ignore[union-attr]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"public_key": 1, "secret_key": "sbx-sk-leak"}'])
async def test_a_damaged_owners_file_is_not_overwritten_nor_quoted(
    keys: Keys, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "owner.json"
    path.write_text(content)
    with pytest.raises(Broken) as caught:
        await ensure_owner(keys, path, url="u")
    assert "leak" not in str(caught.value)
    assert path.read_text() == content


async def test_an_owners_file_that_names_someone_elses_key_gives_no_ownership(
    keys: Keys, tmp_path: Path
) -> None:
    """Whoever can write the file but not the database must not become owner by a key he was given."""
    new = await keys.create("acc", "laptop")
    path = tmp_path / "owner.json"
    path.write_text(json.dumps({"public_key": new.public_key, "secret_key": new.secret_key, "url": "u"}))
    with pytest.raises(Broken):
        await ensure_owner(keys, path, url="u")


async def test_the_owners_key_cannot_be_revoked_before_there_is_another(store: Store, tmp_path: Path) -> None:
    clock = StillClock()
    keys = Keys(store, SEAL, clock=clock)
    path = tmp_path / "owner.json"
    leaked = await ensure_owner(keys, path, url="u")
    with pytest.raises(Conflict):
        await keys.revoke(leaked)
    await clock.sleep(timedelta(seconds=1))
    new = generate(OWNER_ACCOUNT, "owner", accepts_v1=True)
    path.write_text(json.dumps({"public_key": new.public_key, "secret_key": new.secret_key, "url": "u"}))
    assert await ensure_owner(keys, path, url="u") == new.public_key
    # Not the other way about: who has the old one must not lock the owner out.
    with pytest.raises(Conflict):
        await keys.revoke(new.public_key)
    await keys.revoke(leaked)
    assert await keys.find(leaked) is None
    assert await ensure_owner(keys, path, url="u") == new.public_key


def test_the_master_key_is_made_once_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    sealed = open_seal(path).close(b"secret", context="c")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert open_seal(path).open(sealed, context="c") == b"secret"
    path.write_text("not hex")
    with pytest.raises(Broken):
        open_seal(path)


def test_the_same_secret_is_never_sealed_the_same_way_twice() -> None:
    assert SEAL.close(b"s", context="c") != SEAL.close(b"s", context="c")

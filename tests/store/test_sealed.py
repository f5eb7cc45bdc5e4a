"""Environments at rest: nothing of them can be read from the files, old ones included, without the key."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text

from sandboxer.identity.seal import Seal, open_master_key
from sandboxer.kernel.errors import Broken, Conflict
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.store.engine import Store, open_store
from sandboxer.store.idempotency import idempotency
from sandboxer.store.lock import hold_state_dir
from sandboxer.store.sealed import forget_plain, seal_old, seal_with
from sandboxer.work.sessions.records import sessions
from tests.support.platforms import scripted_platform

SECRET = "hunter2-is-not-to-be-found"
ENV = {"TOKEN": SECRET}


def insert_session(conn) -> None:
    conn.execute(
        text(
            "INSERT INTO sessions (id, account, created_by, sandbox_id, owns_sandbox, language, state,"
            " reason, process_id, generation, env, idle_s, created_at, expires_at, last_active_at) VALUES"
            " ('ses_a', 'a', 'k', 'sbx_a', TRUE, 'python', 'running', 'r', 'p', 1, :env, 1,"
            " '2026-11-15 12:00:00', '2026-11-15 12:00:00', '2026-11-15 12:00:00')"
        ),
        {"env": f'{{"TOKEN":"{SECRET}"}}'},
    )


def env_of(conn) -> object:
    return conn.execute(select(sessions.c.env)).scalar()


def raw_of(conn) -> str:
    return str(conn.execute(text("SELECT CAST(env AS TEXT) FROM sessions")).scalar())


def in_files(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.db*") if SECRET.encode() in path.read_bytes()]


async def test_what_an_older_program_kept_in_plain_is_sealed_and_leaves_no_trace(
    store: Store, tmp_path: Path
) -> None:
    await store.write(insert_session)
    seal = Seal(os.urandom(32))
    seal_with(store.database, seal)
    # Still readable, and then sealed.
    assert await store.read(env_of) == ENV
    assert await store.write(seal_old) == 1
    assert await store.write(seal_old) == 0
    assert SECRET not in await store.read(raw_of)
    assert await store.read(env_of) == ENV
    forget_plain(store.database)
    assert in_files(tmp_path) == []


async def test_answers_that_an_older_program_kept_in_plain_are_sealed_too(
    store: Store, tmp_path: Path
) -> None:
    def keep(conn: Connection) -> None:
        for key, body in (("one", SECRET.encode()), ("none", None), ("empty", b"")):
            conn.execute(
                text(
                    "INSERT INTO idempotency (scope, key, claim, request_hash, state, body, begun_at,"
                    " expires_at) VALUES ('a', :key, 'c', 'h', 'done', :body, '2026-11-15 12:00:00',"
                    " '2026-11-15 12:00:00')"
                ),
                {"key": key, "body": body},
            )

    def bodies(conn: Connection) -> dict[str, bytes | None]:
        rows = conn.execute(select(idempotency.c.key, idempotency.c.body)).tuples()
        return dict(rows.all())

    await store.write(keep)
    before = await store.read(bodies)
    seal_with(store.database, Seal(os.urandom(32)))
    assert await store.write(seal_old) == 1
    assert await store.write(seal_old) == 0
    assert await store.read(bodies) == before
    forget_plain(store.database)
    assert in_files(tmp_path) == []


async def test_what_is_sealed_opens_with_its_key_alone(store: Store) -> None:
    await store.write(insert_session)
    seal_with(store.database, Seal(os.urandom(32)))
    await store.write(seal_old)
    seal_with(store.database, Seal(os.urandom(32)))
    with pytest.raises(Broken, match=r"master\.key"):
        await store.read(env_of)


async def test_a_database_is_not_served_without_the_key_that_sealed_it(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    await open_master_key(store, path)
    await open_master_key(store, path)
    kept = path.read_text()
    path.unlink()
    with pytest.raises(Conflict, match="missing"):
        await open_master_key(store, path)
    assert not path.exists(), "a new key hides that the old one is gone"
    path.write_text(os.urandom(32).hex())
    with pytest.raises(Conflict, match="not the key"):
        await open_master_key(store, path)
    path.write_text(kept)
    await open_master_key(store, path)


def test_an_environment_given_to_a_platform_is_in_none_of_its_files(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    with scripted_platform(state) as up, Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        sandbox = client.create(env=ENV, idempotency_key="one")
        assert SECRET in sandbox.exec("env").stdout
        assert in_files(state) == []
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir() if path.is_file()}
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


async def test_a_database_that_others_could_read_is_theirs_no_more(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch(mode=0o644)
    os.chmod(path, 0o644)

    await open_store(f"sqlite:///{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_state_folder_that_others_could_enter_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chmod(folder, 0o755)
    with hold_state_dir(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

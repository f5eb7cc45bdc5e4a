"""Objects of the client say which one they are, and are found by what a person calls them."""

from __future__ import annotations

import pytest

from sandboxer.sdk import AsyncSandboxer, NotFound, Sandbox, Sandboxer
from sandboxer.sdk.errors import Ambiguous
from sandboxer.wire.keys import NewKey
from tests.support.platforms import Up


def test_a_sandbox_says_id_name_and_state(client: Sandboxer) -> None:
    with client.create(name="shown") as sandbox:
        assert repr(sandbox) == f"<Sandbox {sandbox.id} 'shown' ready>"
        assert repr(sandbox.info) == f"Sandbox(id='{sandbox.id}', name='shown', state='ready')"
        assert "profile=" in str(sandbox.info)
        assert repr(client.sandbox(sandbox.id)) == f"<Sandbox {sandbox.id}>"
    assert repr(sandbox) == f"<Sandbox {sandbox.id} 'shown' destroyed>"


def test_a_client_says_where_it_speaks_to(client: Sandboxer, up: Up) -> None:
    assert repr(client) == f"<Sandboxer {up.url}>"


async def test_the_asyncio_client_says_the_same(up: Up) -> None:
    async with AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client:
        assert repr(client) == f"<AsyncSandboxer {up.url}>"
        async with await client.create(name="both") as sandbox:
            assert repr(await client.get("both")) == repr(sandbox) == f"<Sandbox {sandbox.id} 'both' ready>"


def test_a_new_key_does_not_print_its_secret(client: Sandboxer) -> None:
    made = client.keys.create("printed", "default")
    assert isinstance(made, NewKey)
    assert made.secret_key not in repr(made)
    assert made.secret_key not in str(made)
    assert made.public_key in repr(made)


def test_a_sandbox_is_found_by_name_by_id_and_by_how_its_id_begins(client: Sandboxer) -> None:
    with client.create(name="wanted") as sandbox, client.create():
        for word in ("wanted", sandbox.id, sandbox.id[:-1]):
            assert client.get(word).id == sandbox.id


def test_a_name_that_is_gone_can_be_used_again(client: Sandboxer) -> None:
    with client.create(name="again") as old:
        pass
    with client.create(name="again") as new:
        assert client.get("again").id == new.id != old.id


def test_a_word_that_means_several_names_them(client: Sandboxer) -> None:
    with client.create() as one, client.create() as other:
        with pytest.raises(Ambiguous) as refused:
            client.get("sbx_")
        assert one.id in str(refused.value)
        assert other.id in str(refused.value)
        assert {one.id, other.id} <= {each["id"] for each in refused.value.fits}


@pytest.mark.parametrize("word", ["nobody", "sbx_000", "sbx_" + "0" * 26])
def test_a_word_that_means_nothing_is_not_found(client: Sandboxer, word: str) -> None:
    with pytest.raises(NotFound):
        client.get(word)


def test_a_sandbox_is_found_without_a_client_in_hand(
    client: Sandboxer, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in up.environment.items():
        monkeypatch.setenv(name, value)
    with client.create(name="by-class") as sandbox:
        assert Sandbox.get("by-class").id == sandbox.id

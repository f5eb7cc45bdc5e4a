"""`lock`, `unlock`, `wallets` and the answers to a 428, as users run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli, account
from tests.support.signers import Signer


@pytest.fixture
def wallet(tmp_path: Path) -> Path:
    return wallet_of(tmp_path, Signer.named(tmp_path.name))


def wallet_of(folder: Path, signer: Signer) -> Path:
    file = folder / f"{signer.evm}.key"
    file.write_text(signer.key.secret.hex())
    file.chmod(0o600)
    return file


def test_a_locked_sandbox_is_destroyed_only_with_the_wallet(cli: Cli, wallet: Path, tmp_path: Path) -> None:
    own = account(cli, "cli-locker", 100_000)
    box = own("create", "--profile", "profile.agent-dev", "--json").json["id"]
    lonely = own("lock", box, "--json")
    assert lonely.code == Exit.REFUSED
    assert "Link a wallet" in lonely.error["next_step"]
    linked = own("wallet", "link", "--wallet", str(wallet), "--json")
    assert linked.code == Exit.OK, linked.err
    assert Signer.named(tmp_path.name).evm in own("wallet", "list").out.lower()
    assert own("lock", box, "--json").json["locked_at"]
    refused = own("delete", box)
    assert refused.code == Exit.ERROR
    assert "Action: destroy" in refused.err
    assert "--wallet FILE" in refused.err
    gone = own("delete", box, "--wallet", str(wallet), "--json")
    assert gone.code == Exit.OK, gone.err
    assert gone.json["state"] == "destroyed"


def test_a_challenge_can_be_signed_elsewhere(cli: Cli, wallet: Path, tmp_path: Path) -> None:
    own, signer = account(cli, "cli-elsewhere", 100_000), Signer.named(tmp_path.name)
    assert own("wallet", "link", SANDBOXER_WALLET=str(wallet)).code == Exit.OK
    box = own("create", "--profile", "profile.agent-dev", "--json").json["id"]
    assert own("lock", box).code == Exit.OK
    asked = own("unlock", box, "--json").error
    text = asked["message"].split("-" * 40 + "\n")[1].removesuffix("\n")
    challenge = re.search(r"--proof ([0-9a-f]{64}),", asked["next_step"])
    assert challenge is not None
    proof = f"{challenge[1]},{signer.evm},{signer.sign_evm(text)}"
    assert own("unlock", box, "--proof", proof, "--json").json["locked_at"] is None
    assert own("delete", box).code == Exit.OK


def test_a_key_is_rotated_by_its_account_with_the_wallet(cli: Cli, wallet: Path) -> None:
    own = account(cli, "cli-rotator", 1)
    assert own("wallet", "link", "--wallet", str(wallet)).code == Exit.OK
    public_key = own.environment["SANDBOXER_PUBLIC_KEY"]
    assert own("key", "rotate", public_key).code == Exit.ERROR
    rotated = own("key", "rotate", public_key, "--wallet", str(wallet), "--json")
    assert rotated.code == Exit.OK, rotated.err
    assert own("list").code == Exit.AUTH
    now = Cli(own.environment | {"SANDBOXER_SECRET_KEY": rotated.json["secret_key"]})
    assert now("list").code == Exit.OK
    address = now("wallet", "list", "--json").items[0]["address"]
    assert now("wallet", "end-sessions", "--json").json == {"ended": 0}
    assert now("wallet", "unlink", address).code == Exit.OK


def test_a_key_file_that_others_can_read_is_refused(cli: Cli, wallet: Path) -> None:
    wallet.chmod(0o644)
    said = cli("wallet", "link", "--wallet", str(wallet), "--json")
    assert said.code == Exit.ERROR
    assert "chmod 600" in said.error["next_step"]


def test_a_wallet_signs_only_for_the_address_at_which_it_is_asked(cli: Cli, wallet: Path) -> None:
    """As a platform has it that passes on what another one shows."""
    own = account(cli, "cli-elsewhere-known", 100_000)
    assert own("wallet", "link", "--wallet", str(wallet)).code == Exit.OK
    box = own("create", "--profile", "profile.agent-dev", "--json").json["id"]
    assert own("lock", box).code == Exit.OK
    port = str(own.environment["SANDBOXER_URL"]).rpartition(":")[2]
    by_other_name = Cli(own.environment | {"SANDBOXER_URL": f"http://localhost:{port}"})
    for words in (["wallet", "link"], ["wallet", "sign-in"], ["unlock", box]):
        said = by_other_name(*words, "--wallet", str(wallet), "--json")
        assert (said.code, said.error["code"]) == (Exit.ERROR, "foreign_text"), said.err
        assert f"for 127.0.0.1:{port}, and it was asked at http://localhost:{port}" in said.error["message"]
    assert own("delete", box, "--wallet", str(wallet)).code == Exit.OK

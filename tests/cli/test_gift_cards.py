"""`gift` as users run it."""

from __future__ import annotations

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli


def test_a_card_is_given_looked_at_redeemed_in_parts_and_revoked(cli: Cli) -> None:
    said = cli("gift", "create", "50.00", "--free", "--reason", "prize")
    assert "$50.00" in said.out
    made = cli("gift", "create", "50", "--free", "--reason", "prize", "--json").json
    assert "$50.00" in cli("gift", "balance", made["code"]).out
    done = cli("gift", "redeem", made["code"], "--tier", "1", "--months", "3", "--new-account", "--json").json
    assert done["redemption"]["left_cents"] == 3047
    assert done["key"]["secret_key"]
    assert cli("gift", "show", done["redemption"]["id"], "--json").json["state"] == "granted"
    assert "$30.47" in cli("gift", "show", made["id"]).out
    assert made["id"] in cli("gift", "list").out
    ended = cli("gift", "revoke", made["id"], "--reason", "lost", "--json").json
    assert ended["state"] == "revoked"
    assert cli("gift", "balance", made["code"]).code == Exit.REFUSED
    assert cli("gift", "deny", "rdm_" + "0" * 26 + ".1." + "0" * 64).code == Exit.REFUSED


def test_amounts_are_whole_cents_and_one_way_to_pay_is_named(cli: Cli) -> None:
    for words in (
        ["50"],
        ["50", "--free", "--sats"],
        ["7.005", "--free"],
        ["much", "--free"],
        ["-1", "--free"],
    ):
        assert cli("gift", "create", *words, "--reason", "x").code != Exit.OK
    assert cli("gift", "create", "6.99", "--free", "--reason", "x").code == Exit.REFUSED

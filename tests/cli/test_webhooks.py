"""`webhooks` as users run it, on a platform that sends to public addresses only."""

from __future__ import annotations

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli


def test_a_webhook_is_added_tested_looked_at_and_removed(cli: Cli) -> None:
    made = cli("webhook", "create", "https://localhost/hook", "--kind", "usage.*", "--json").json
    assert made["secret"].startswith("whsec_")
    assert made["id"] in cli("webhook", "list").out
    assert made["secret"] not in cli("webhook", "list", "--json").out
    tried = cli("webhook", "test", made["id"])
    assert (tried.code, "forbidden_address" in tried.out) == (Exit.ERROR, True)
    rows = cli("webhook", "deliveries", made["id"], "--state", "retrying", "--json").items
    assert [row["kind"] for row in rows] == ["webhook.test"]
    assert "retrying" in cli("webhook", "deliveries", made["id"]).out
    again = cli("webhook", "redeliver", made["id"], rows[0]["id"], "--json")
    assert (again.code, len(again.json["attempts"])) == (Exit.ERROR, 2)
    new = cli("webhook", "rotate", made["id"], "--overlap", "1h", "--json").json
    assert new["secret"] != made["secret"]
    assert "is off" in cli("webhook", "update", made["id"], "--off").out
    assert cli("webhook", "delete", made["id"], "--json").json == {"id": made["id"], "deleted": True}
    assert cli("webhook", "test", made["id"]).code == Exit.REFUSED
    assert cli("webhook", "create", "http://example.com/").code == Exit.REFUSED

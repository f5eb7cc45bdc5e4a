"""`webhooks` as users run it, on a platform that sends to public addresses only."""

from __future__ import annotations

from sandboxer.edges.cli.exits import Exit
from tests.support.cli import Cli


def test_a_webhook_is_added_tested_looked_at_and_removed(cli: Cli) -> None:
    made = cli("webhooks", "add", "https://localhost/hook", "--kind", "usage.*", "--json").json
    assert made["secret"].startswith("whsec_")
    assert made["id"] in cli("webhooks", "list").out
    assert made["secret"] not in cli("webhooks", "list", "--json").out
    tried = cli("webhooks", "test", made["id"])
    assert (tried.code, "forbidden_address" in tried.out) == (Exit.ERROR, True)
    rows = cli("webhooks", "deliveries", made["id"], "--state", "retrying", "--json").json["deliveries"]
    assert [row["kind"] for row in rows] == ["webhook.test"]
    assert "retrying" in cli("webhooks", "deliveries", made["id"]).out
    again = cli("webhooks", "redeliver", made["id"], rows[0]["id"], "--json")
    assert (again.code, len(again.json["attempts"])) == (Exit.ERROR, 2)
    new = cli("webhooks", "rotate", made["id"], "--overlap", "1h", "--json").json
    assert new["secret"] != made["secret"]
    assert "is off" in cli("webhooks", "set", made["id"], "--off").out
    assert cli("webhooks", "remove", made["id"], "--json").json == {"id": made["id"], "removed": True}
    assert cli("webhooks", "test", made["id"]).code == Exit.REFUSED
    assert cli("webhooks", "add", "http://example.com/").code == Exit.REFUSED

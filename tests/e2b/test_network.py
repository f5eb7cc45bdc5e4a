"""Rules of a network on real walls, through E2B's own Python SDK; hosts are `tests.support.internet`'s."""

from __future__ import annotations

import httpx
import pytest

from e2b import CommandExitException, Sandbox, SandboxException
from sandboxer.wire.e2b import bearer_of
from tests.support.internet import Internet
from tests.support.platforms import Up

HOST = "connectivitycheck.gstatic.com"


def status(sandbox: Sandbox, host: str) -> str:
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' https://{host}/generate_204"
    return sandbox.commands.run(asked).stdout


def test_what_is_denied_is_not_reached_and_all_else_is(real_key: str) -> None:
    with Sandbox.create(timeout=120, network={"deny_out": ["8.8.8.8"]}) as sandbox:
        assert (status(sandbox, "1.1.1.1"), status(sandbox, HOST)) == ("301", "204")
        with pytest.raises(CommandExitException):
            status(sandbox, "8.8.8.8")
        sandbox.update_network({"deny_out": ["1.1.1.1"]})
        assert status(sandbox, "8.8.8.8") == "302"
        with pytest.raises(CommandExitException):
            status(sandbox, "1.1.1.1")


def test_headers_are_put_into_requests_outside(real_up: Up, real_key: str, internet: Internet) -> None:
    rules = {HOST: [{"transform": {"headers": {"X-Token": "a secret: value"}}}]}
    with Sandbox.create(timeout=120, network={"rules": rules}) as sandbox:
        assert (status(sandbox, HOST), status(sandbox, "1.1.1.1")) == ("204", "301")
        seen = {host: head.get("x-token") for host, head in internet.heads}
        assert (seen[HOST], seen["1.1.1.1"]) == ("a secret: value", None)
        where = f"{real_up.url}/v1/sandboxes/{sandbox.sandbox_id.replace('-', '_')}/egress"
        shown = httpx.get(where, headers={"Authorization": f"Bearer {bearer_of(real_key)}"}, trust_env=False)
        assert shown.json()["secrets"][0]["header"] == "X-Token"
        assert "a secret" not in shown.text
        sandbox.update_network({})
        assert status(sandbox, HOST) == "204"
        assert internet.heads[-1][1].get("x-token") is None
    for wrong in ({"*.example.com": rules[HOST]}, {HOST: [{"transform": {"headers": {"Host": "x"}}}]}):
        with pytest.raises(SandboxException, match="secrets"):
            Sandbox.create(network={"rules": wrong})

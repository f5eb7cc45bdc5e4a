"""Everything that dials for a tenant asks one judge: this host's own addresses are nobody's to reach."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest

from sandboxer.kernel.addresses import DialJudge, Verdict
from sandboxer.kernel.errors import Conflict
from sandboxer.observe.webhooks.carrier import Carrier, Failure
from sandboxer.work.services.domains import asking
from tests.access.egress.world import ADDRESS, OWN, OWN_6, listening


@pytest.mark.parametrize("host", [OWN, f"[{OWN_6}]"])
async def test_a_webhook_tells_nothing_about_the_ports_of_this_host(world: None, host: str) -> None:
    carrier = Carrier(allow_private=False, timeout_s=5)
    try:
        with listening(host.strip("[]"), 80) as own:
            outcomes = [await carrier.carry(f"https://{host}:{port}/", {}, b"{}") for port in (80, 81)]
            assert nobody_came(own)
        assert {one.failure for one in outcomes} == {Failure.FORBIDDEN_ADDRESS}
        assert len({one.reason for one in outcomes}) == 1
    finally:
        await carrier.close()


async def test_a_domain_that_leads_here_is_answered_for_and_not_dialled(world: None) -> None:
    async def resolve(domain: str, owner: str) -> Sequence[str]:
        return (OWN,)

    served: dict[str, str] = {}
    ask = asking(port=80, judge=DialJudge(), resolve=resolve, served_here=served.get)
    with listening(OWN, 80) as own:
        with pytest.raises(Conflict, match="leads to this platform"):
            await ask("shop.example.com", "acme")
        served["shop.example.com"] = "token"
        assert await ask("shop.example.com", "acme") == b"token"
        assert nobody_came(own)


def test_an_operator_s_own_use_may_reach_this_host(world: None) -> None:
    assert DialJudge().judge(ADDRESS) is Verdict.GOOD
    assert DialJudge().judge(OWN) is Verdict.OWN
    assert DialJudge().judge("10.1.2.3") is Verdict.NOT_PUBLIC
    assert DialJudge(allow_private=True).judge(OWN) is Verdict.GOOD


def nobody_came(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.accept()
    except BlockingIOError:
        return True
    return False

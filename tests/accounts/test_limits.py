from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.accounts.limits import (
    LimitPolicy,
    Quota,
    Sender,
    client_address,
    free_slots,
    generations,
    network_around,
    parse_networks,
    quotas,
    requests_per_minute,
)
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.operations.declaration import RateClass

PROXIES = parse_networks(["10.0.0.0/8", "fd00::/8", "127.0.0.1"])


@pytest.mark.parametrize(("tier", "rpm", "slots"), [(1, 7, 1), (4, 28, 1), (5, 35, 2), (32, 224, 8)])
def test_tier_n_allows_seven_n_requests_a_minute_and_a_slot_for_every_four(
    tier: int, rpm: int, slots: int
) -> None:
    assert requests_per_minute(tier, policy=LimitPolicy(bucket_only=1)) == rpm
    assert free_slots(tier) == slots


@pytest.mark.parametrize(
    ("tier", "depth"), [(None, 1), (1, 1), (7, 1), (8, 2), (15, 2), (16, 4), (31, 4), (32, 8)]
)
def test_an_account_raises_as_many_generations_as_the_highest_step_says_that_its_tier_reaches(
    tier: int | None, depth: int
) -> None:
    steps = LimitPolicy(depths={0: 1, 32: 8, 8: 2, 16: 4})
    assert generations(tier, policy=steps) == depth
    assert generations(tier) == 8
    assert generations(tier, policy=LimitPolicy(depths={33: 1})) == 0
    assert generations(None, is_owner=True, policy=LimitPolicy(depths={0: 1})) == 8


@pytest.mark.parametrize("depths", [{-1: 1}, {0: -1}, {0: 1001}])
def test_steps_of_depth_that_cannot_be_are_refused(depths: dict[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="limit_depth"):
        LimitPolicy(depths=depths)


@pytest.mark.parametrize("tier", [1, 17, 18, 32])
def test_buying_a_tier_never_lowers_how_much_an_account_may_send(tier: int) -> None:
    """Tier 1 once took an account from 120 requests a minute down to 7."""
    without = requests_per_minute(None) or 0
    assert (requests_per_minute(tier) or 0) >= without
    before = quotas(RateClass.API, address="a", caller=Sender(public_key="pk", root="r"))
    entitled = Sender(public_key="pk", root="r", tier=tier, root_tier=tier)
    after = quotas(RateClass.API, address="a", caller=entitled)
    assert all(then.limit >= now.limit for now, then in zip(before, after, strict=True))


def test_an_account_without_a_tier_has_the_configured_limit_and_no_free_slot() -> None:
    assert requests_per_minute(None, policy=LimitPolicy(bucket_only=33)) == 33
    assert free_slots(None) == 0


def test_the_owner_is_never_limited() -> None:
    owner = Sender(public_key="pk", root="owner", is_owner=True)
    assert requests_per_minute(None, is_owner=True) is None
    assert all(quotas(route, address="1.2.3.4", caller=owner) == () for route in RateClass)


def test_a_request_is_counted_by_key_by_root_account_and_by_address() -> None:
    sender = Sender(public_key="pk", root="acc_root", root_tier=2)
    policy = LimitPolicy(bucket_only=10, address=500)
    assert quotas(RateClass.API, address="1.2.3.4", caller=sender, policy=policy) == (
        Quota("address:1.2.3.4", 500),
        Quota("key:pk", 10),
        Quota("account:acc_root", 14),
    )


def test_many_children_of_one_account_share_its_allowance() -> None:
    shared = {
        quota
        for number in range(50)
        for quota in quotas(
            RateClass.API, address="a", caller=Sender(public_key=f"pk{number}", root="acc_root")
        )
        if quota.name.startswith("account:")
    }
    assert len(shared) == 1


def test_children_of_the_owner_are_limited_one_by_one() -> None:
    child = Sender(public_key="pk", root="owner", is_root_owner=True)
    assert [q.name for q in quotas(RateClass.API, address="a", caller=child)] == ["address:a", "key:pk"]


def test_auth_routes_are_tighter_by_key_and_by_address() -> None:
    policy = LimitPolicy(auth_address=10, auth_key=5)
    stranger = quotas(RateClass.AUTH, address="1.2.3.4", caller=None, policy=policy)
    assert Quota("auth-address:1.2.3.4", 10) in stranger
    known = quotas(RateClass.AUTH, address="a", caller=Sender(public_key="pk", root="r"), policy=policy)
    assert Quota("auth-key:pk", 5) in known


def test_a_limit_of_nothing_is_refused_at_start() -> None:
    with pytest.raises(InvalidRequest):
        LimitPolicy(auth_address=0)


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        # A stranger's claim is worth nothing.
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        # What the caller wrote itself stands left of what our proxy saw.
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1, 10.0.0.7"], "198.51.100.1"),
        ("10.0.0.1", ["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
        # Only proxies all the way: the farthest of them.
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        # What cannot be read is not believed, and nothing left of it either.
        ("10.0.0.1", ["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ['"[2001:db8:1:2:3::4]:4711"'], "2001:db8:1:2::/64"),
        ("2001:db8:1:2:aaaa::1", [], "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::1", [], "2001:db8:1:2::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("::ffff:203.0.113.9", [], "203.0.113.9"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        (None, ["198.51.100.1"], "local"),
        ("", [], "local"),
    ],
)
def test_the_client_is_whom_the_configured_proxies_saw(
    peer: str | None, forwarded: list[str], client: str
) -> None:
    assert client_address(peer, forwarded, PROXIES) == client


def test_without_configured_proxies_no_header_counts() -> None:
    assert client_address("127.0.0.1", ["1.2.3.4"], ()) == "127.0.0.1"


@given(
    st.ip_addresses().filter(lambda a: not any(a in n for n in PROXIES if n.version == a.version)),
    st.lists(st.text()),
)
def test_no_header_of_a_stranger_changes_whom_we_count(
    peer: ipaddress.IPv4Address | ipaddress.IPv6Address, forwarded: list[str]
) -> None:
    mapped = getattr(peer, "ipv4_mapped", None)
    if mapped is None or not any(mapped in n for n in PROXIES if n.version == 4):
        assert client_address(str(peer), forwarded, PROXIES) == client_address(str(peer), [], PROXIES)


@given(st.lists(st.text(max_size=40), max_size=100))
def test_any_header_through_a_proxy_gives_some_address(forwarded: list[str]) -> None:
    found = client_address("10.0.0.1", forwarded, PROXIES)
    assert ipaddress.ip_network(found)


def test_a_proxy_that_is_no_address_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"proxy\.example"):
        parse_networks(["proxy.example"])


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.9", "203.0.113.0/24"),
        ("2001:db8:7:1::/64", "2001:db8:7::/48"),
        ("2001:db8:7:ffff::/64", "2001:db8:7::/48"),
        ("local", "local"),
    ],
)
def test_a_network_that_one_party_has_whole_is_one(address: str, network: str) -> None:
    assert network_around(address) == network

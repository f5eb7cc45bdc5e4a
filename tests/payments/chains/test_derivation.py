"""Addresses as other wallets make them (BIP 84, BIP 49, well-known seeds), and never of another coin."""

from __future__ import annotations

import pytest

from sandboxer.edges.cli.payments import blocks_of
from sandboxer.edges.http.routes.payments.invoices import picture_of
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import (
    NETWORKS,
    address_of,
    check_monero_address,
    network_of,
    payment_uri,
    script_of,
)
from sandboxer.payments.chains.bitcoin import Script, read_account_key
from tests.support.payments.keys import BIP84_ZPUB, ROOT, xpub


def test_the_zpub_of_bip_84_gives_the_addresses_of_bip_84() -> None:
    key = read_account_key(BIP84_ZPUB, network_of("BTC"))
    assert key.address(0) == "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"
    assert key.address(1) == "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g"
    assert key.address(0, branch=1) == "bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el"


@pytest.mark.parametrize(
    ("path", "version", "coin", "address"),
    [
        ("m/49h/0h/0h", "049d7cb2", "BTC", "37VucYSaXLCAsxYyAPfbSi9eh4iEcbShgf"),
        ("m/84h/2h/0h", "0488b21e", "LTC", "ltc1qjmxnz78nmc8nq77wuxh25n2es7rzm5c2rkk4wh"),
        ("m/44h/3h/0h", "02facafd", "DOGE", "DBus3bamQjgJULBJtYXpEzDWQRwF5iwxgC"),
    ],
)
def test_each_kind_of_key_makes_its_kind_of_address(path: str, version: str, coin: str, address: str) -> None:
    assert read_account_key(xpub(path, version), network_of(coin)).address(0) == address


def test_a_kind_can_be_asked_for() -> None:
    key = read_account_key(xpub("m/44h/0h/0h"), network_of("BTC"), Script.P2PKH)
    assert key.address(0) == "1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA"


def test_a_key_that_can_spend_is_refused_and_so_is_nonsense() -> None:
    private = str(ROOT.derive("m/84h/0h/0h").to_base58())
    with pytest.raises(InvalidRequest, match="can spend") as refusal:
        read_account_key(private, network_of("BTC"))
    assert private not in str(refusal.value)
    for text in ("", "xpub", BIP84_ZPUB[:-1] + "a", "1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA"):
        with pytest.raises(InvalidRequest):
            read_account_key(text, network_of("BTC"))
    with pytest.raises(InvalidRequest, match="witness"):
        read_account_key(BIP84_ZPUB, network_of("DOGE"))
    key = read_account_key(BIP84_ZPUB, network_of("BTC"))
    for index in (-1, 2**31):
        with pytest.raises(InvalidRequest):
            key.address(index)


ADDRESSES = {
    "BTC": [
        "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu",
        "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
        "37VucYSaXLCAsxYyAPfbSi9eh4iEcbShgf",
        "1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA",
    ],
    "LTC": ["ltc1qjmxnz78nmc8nq77wuxh25n2es7rzm5c2rkk4wh"],
    "DOGE": ["DBus3bamQjgJULBJtYXpEzDWQRwF5iwxgC"],
}


def test_an_address_belongs_to_one_coin_only_and_survives_the_way_to_its_script_and_back() -> None:
    for coin, addresses in ADDRESSES.items():
        for address in addresses:
            assert address_of(script_of(address, network_of(coin)), network_of(coin)) == address
            for other in set(ADDRESSES) - {coin}:
                with pytest.raises(InvalidRequest):
                    script_of(address, network_of(other))


def test_slips_and_wrong_checksums_are_refused_on_every_network() -> None:
    bad = ["", " ", "bc1", "BC1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu", "1" * 34, "0OIl", "\x00" * 30]
    # A version-1 program under the checksum of version 0 (BIP 350's reason to be).
    bad.append("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqh2y7hd")
    for network in NETWORKS.values():
        for text in bad:
            with pytest.raises(InvalidRequest):
                script_of(text, network)


MONERO = "461nRJUL7Tm8QkSo8SS3r5if61cXGrUpggdgkLhKLWVQ5f3eykX2F41Ait68ewoVFFAuv2rzcXE9j5VaDpti3iL86sj9XYa"
SUBADDRESS = "82sd8n7RGQoKssaz9ZU5QTKUtz8AR9XyQNRwH8VaguhbaDyNJWFud5k2WTCh4M2CFqAERqytk46mfYcUUDzNwLzrVW2VEzd"


def test_monero_addresses_are_known_by_network_and_checksum() -> None:
    check_monero_address(MONERO, "mainnet")
    check_monero_address(SUBADDRESS, "mainnet")
    for text, network in (
        (MONERO, "stagenet"),
        (MONERO[:-1] + "b", "mainnet"),
        (MONERO[1:], "mainnet"),
        ("l" * 95, "mainnet"),
        ("z" * 95, "mainnet"),
        ("", "mainnet"),
    ):
        with pytest.raises(InvalidRequest):
            check_monero_address(text, network)


def test_payment_uris_say_the_exact_amount_and_escape_the_label() -> None:
    assert payment_uri("BTC", "bc1q", 1, "") == "bitcoin:bc1q?amount=0.00000001"
    assert payment_uri("LTC", "ltc1", 10**8, "a&b=c d") == "litecoin:ltc1?amount=1&label=a%26b%3Dc%20d"
    assert payment_uri("DOGE", "D", 150_000_000, "x") == "dogecoin:D?amount=1.5&label=x"
    assert payment_uri("XMR", "8B", 4_520_000_000_000, "x") == "monero:8B?tx_amount=4.52&tx_description=x"


def test_a_uri_becomes_a_picture_for_pages_and_for_terminals() -> None:
    uri = payment_uri("XMR", SUBADDRESS, 4_520_000_000_000, "invoice")
    assert picture_of(uri).startswith("<svg")
    assert picture_of(uri).rstrip().endswith("</svg>")
    lines = blocks_of(uri).splitlines()
    assert len(lines) > 20
    assert "█" in lines[0]

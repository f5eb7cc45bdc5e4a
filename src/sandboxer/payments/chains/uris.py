"""What a paying wallet scans: BIP 21 for the Bitcoin family, Monero's own form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import quote

from sandboxer.payments.assets import ASSETS, as_text

# scheme, name of the amount, name of the text
_FORMS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "BTC": ("bitcoin", "amount", "label"),
        "LTC": ("litecoin", "amount", "label"),
        "DOGE": ("dogecoin", "amount", "label"),
        "XMR": ("monero", "tx_amount", "tx_description"),
    }
)


def payment_uri(code: str, address: str, amount: int, label: str) -> str:
    scheme, amount_name, label_name = _FORMS[code]
    uri = f"{scheme}:{address}?{amount_name}={as_text(amount, ASSETS[code])}"
    return f"{uri}&{label_name}={quote(label, safe='')}" if label else uri

"""The two Stacks networks by their CAIP-2 names, and the tokens people pay with there.

The contracts come from others' published code, so every one can be set anew by the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxer.payments.stacks.codec.transactions import MAINNET_VERSION, TESTNET_VERSION

SCHEME = "exact"
CAIP_FAMILY = "stacks:*"
STX = "STX"


@dataclass(frozen=True, slots=True)
class StacksNetwork:
    caip2: str
    version: int
    chain_id: int

    @property
    def mainnet(self) -> bool:
        return self.version == MAINNET_VERSION


MAINNET = StacksNetwork("stacks:1", MAINNET_VERSION, 1)
TESTNET = StacksNetwork("stacks:2147483648", TESTNET_VERSION, 2147483648)
NETWORKS: Mapping[str, StacksNetwork] = {network.caip2: network for network in (MAINNET, TESTNET)}

# Code of the asset in payments/assets.py -> `contract::token`, or STX itself.
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    MAINNET.caip2: {
        "SBTC": "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token",
        "STX": STX,
        "USDCX": "SP120SBRBQJ00MCWS7TM5R8WJNTTKD5K0HFRC2CNE.usdcx::usdcx-token",
    },
    TESTNET.caip2: {
        "SBTC": "ST1F7QA2MDF17S807EPA36TSS8AMEFY4KA9TVGWXT.sbtc-token::sbtc-token",
        "STX": STX,
        "USDCX": "ST1PQHQKV0RJXZFY1DGX8MNSNYVE3VGZJSRTPGZGM.usdcx::usdcx-token",
    },
}

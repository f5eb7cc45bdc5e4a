"""Permit2 and a proxy for `upto` on a test chain, where the official package looks for them.

Permit2 is the real one: its address is the hash of its code, so that a wrong byte would end up elsewhere.
The proxy is our own (UptoProxy.sol by solc 0.8.28, optimizer at 200 runs), put at the official address.
"""

from __future__ import annotations

import json
from pathlib import Path

from eth_account import Account
from web3 import Web3
from x402.mechanisms.evm.constants import PERMIT2_ADDRESS, X402_UPTO_PERMIT2_PROXY_ADDRESS

from testchains.evm.anvil import DEPLOYER_KEY, Anvil, address_of

HERE = Path(__file__).parent
# A well-known contract that makes others by CREATE2; anvil has it from the start.
_CREATE2 = Web3.to_checksum_address("0x4e59b44847b379578588920ca78fbf26c0b4956c")
_EVERYTHING = 2**256 - 1
_SOME_ETHER = 10**18


def deploy_permit2(chain: Anvil) -> None:
    """Both contracts; nothing happens where they are."""
    if not chain.web3.eth.get_code(Web3.to_checksum_address(PERMIT2_ADDRESS)):
        artefact = json.loads((HERE / "Permit2.json").read_text())
        data = artefact["salt"] + artefact["bytecode"].removeprefix("0x")
        txid = chain.web3.eth.send_transaction(
            {"from": address_of(DEPLOYER_KEY), "to": _CREATE2, "data": data}
        )
        chain.web3.eth.wait_for_transaction_receipt(txid, poll_latency=0.01)
        if not chain.web3.eth.get_code(Web3.to_checksum_address(PERMIT2_ADDRESS)):
            raise RuntimeError("this is not the code of Permit2")
    proxy = json.loads((HERE / "UptoProxy.json").read_text())
    chain.call("anvil_setCode", [X402_UPTO_PERMIT2_PROXY_ADDRESS, proxy["runtime"]])


def approve_permit2(chain: Anvil, key: str) -> None:
    """What a payer does once for each token, paying the gas himself: Permit2 may move his dollars."""
    owner = Account.from_key(key)
    chain.call("anvil_setBalance", [owner.address, hex(_SOME_ETHER)])
    send(chain, key, chain.dollar.functions.approve(PERMIT2_ADDRESS, _EVERYTHING))


def cancel_nonce(chain: Anvil, key: str, nonce: int) -> None:
    """A payer's own right at Permit2: this nonce moves nothing any more."""
    permit2 = chain.web3.eth.contract(address=Web3.to_checksum_address(PERMIT2_ADDRESS), abi=_CANCEL)
    send(chain, key, permit2.functions.invalidateUnorderedNonces(nonce >> 8, 1 << (nonce & 255)))


def send(chain: Anvil, key: str, call: object) -> None:
    """A call to a contract, signed by this wallet."""
    owner = Account.from_key(key)
    count = chain.web3.eth.get_transaction_count(owner.address)
    unsigned = call.build_transaction({"from": owner.address, "nonce": count})  # type: ignore[attr-defined]
    txid = chain.web3.eth.send_raw_transaction(owner.sign_transaction(unsigned).raw_transaction)
    receipt = chain.web3.eth.wait_for_transaction_receipt(txid, poll_latency=0.01)
    if receipt["status"] != 1:
        raise RuntimeError("the transaction was reverted")


_CANCEL = [
    {
        "type": "function",
        "name": "invalidateUnorderedNonces",
        "inputs": [{"name": "wordPos", "type": "uint256"}, {"name": "mask", "type": "uint256"}],
        "outputs": [],
        "stateMutability": "nonpayable",
    }
]

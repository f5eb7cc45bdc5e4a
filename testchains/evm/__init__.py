"""An EVM chain of our own: anvil, a dollar with EIP-3009 on it, and keys with money."""

from testchains.evm.anvil import DEPLOYER_KEY, KEYS, Anvil, running_anvil, why_no_anvil

__all__ = ["DEPLOYER_KEY", "KEYS", "Anvil", "running_anvil", "why_no_anvil"]

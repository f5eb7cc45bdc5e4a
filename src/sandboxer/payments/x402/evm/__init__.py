"""Ethereum and its kin: EIP-3009 (`exact`) and Permit2 (`upto`), read, settled and looked up."""

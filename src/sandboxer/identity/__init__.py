"""Says who is calling: keys, signatures, nonces, wallets, the owner."""

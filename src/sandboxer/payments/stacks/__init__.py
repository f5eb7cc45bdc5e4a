"""Stacks: its transactions, its x402 scheme and the sponsor relay that settles them."""

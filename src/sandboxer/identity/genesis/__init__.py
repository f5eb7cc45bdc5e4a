"""The genesis gate: two signatures over one nonce, and a registry that knows the pair at level 2 or above."""

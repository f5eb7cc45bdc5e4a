"""Who is calling: keys, signatures, nonces, the owner."""

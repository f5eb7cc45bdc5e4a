"""Signs wallets in: a challenge, a signature, and a token that expires or is revoked."""

"""Signing in with a wallet: a challenge, a signature, a token that ends by itself or on demand."""

"""Secrets are kept sealed for an account, injected into sandboxes and wiped from them."""

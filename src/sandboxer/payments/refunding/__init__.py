"""Refunds paid by a hot wallet, within caps, from the very outputs they return."""

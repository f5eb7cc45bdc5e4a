"""Adapters to the nodes of chains: they report which outputs reached which address, and how deep."""

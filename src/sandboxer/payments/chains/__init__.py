"""Ears on the chains: adapters to nodes that tell which outputs reached which address, and how deep."""

"""Sandboxes that make sandboxes: what one was granted, the socket inside by which it asks, and its end."""

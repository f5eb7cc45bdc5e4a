# Written by scripts/generate-sync from sdk/aio/__init__.py. Do not edit.
"""The client, blocking."""

"""Verbs for what outlives a sandbox: snapshots, images, volumes."""

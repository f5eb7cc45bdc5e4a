"""Verbs for what lies between a sandbox and the outside."""

"""Egress is what a sandbox may reach outside: rules, decisions, the proxy that enforces them, and its
records.
"""

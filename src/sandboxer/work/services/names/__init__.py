"""Domains of customers: claimed, proven, looked at again."""

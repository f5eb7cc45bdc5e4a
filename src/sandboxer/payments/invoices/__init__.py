"""Invoices: an address of its own, an exact amount, and what becomes of whatever arrives there."""

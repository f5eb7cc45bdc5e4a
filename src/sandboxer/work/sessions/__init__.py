"""Stateful interpreters: what a cell sets, the next one finds."""

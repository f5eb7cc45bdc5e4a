"""Errors, ids, clock and durations: the words every package shares. No I/O, no third party."""

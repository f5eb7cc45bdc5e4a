"""Errors, ids, clock and durations: the words every room shares. No I/O, no third party."""

"""Runs of code that outlive their request: queued, run, kept."""

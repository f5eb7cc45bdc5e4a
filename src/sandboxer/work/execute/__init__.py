"""One-shot runs of code: each gets a sandbox of its own, which is removed afterwards."""

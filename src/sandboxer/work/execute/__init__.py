"""One-shot runs of code: a sandbox of its own, made for it and removed after it."""

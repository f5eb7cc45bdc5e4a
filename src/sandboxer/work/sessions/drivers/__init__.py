"""Programs that run inside a sandbox; here they are data."""

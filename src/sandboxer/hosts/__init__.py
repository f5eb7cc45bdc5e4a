"""Where sandboxes stand: which backend makes one, and why."""

"""Jobs are runs of code that outlive their request: they are queued, run, and kept for a while."""

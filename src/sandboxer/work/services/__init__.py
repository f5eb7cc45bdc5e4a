"""Services are long-running processes with a name and an endpoint, each in a sandbox of its own."""

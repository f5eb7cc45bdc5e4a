"""Services: long-running processes with a name and an endpoint."""

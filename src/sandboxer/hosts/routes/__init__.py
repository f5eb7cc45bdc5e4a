"""A route is how a backend is chosen for a sandbox: the decision, and what it is decided from."""

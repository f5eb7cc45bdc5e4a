"""The SSH gateway: one port, a sandbox's id as user name, stock clients. Loaded only if it listens."""

"""What a sandbox may reach outside: rules, decisions, the proxy that holds to them, and its bookkeeping."""

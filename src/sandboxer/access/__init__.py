"""How the outside reaches into a sandbox, and what a sandbox may reach outside: ports, egress, secrets, ssh."""

"""Reaching into a sandbox, and what a sandbox may reach: ports, egress, secrets, ssh."""

"""Access to a sandbox from outside, and what a sandbox may reach: ports, egress, secrets, SSH."""

"""Routes of ports, egress, secrets and SSH keys."""

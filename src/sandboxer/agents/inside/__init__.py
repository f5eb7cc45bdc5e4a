"""What programs inside a sandbox can know of it, and how they are told."""

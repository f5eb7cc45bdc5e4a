"""Routes of what lies between a sandbox and the outside."""

"""Images of what people have: built from Dockerfiles and fetched from registries, in a sandbox (0033)."""

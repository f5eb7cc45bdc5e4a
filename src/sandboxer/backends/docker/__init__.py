"""Sandboxes as containers of an engine, Docker's or Podman's, by its API: on this host or on another."""

"""Sandboxes behind an OCI runtime, by its command line: runsc (gVisor), runc or crun."""

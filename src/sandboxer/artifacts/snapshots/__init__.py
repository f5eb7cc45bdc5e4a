"""Snapshots are disks of sandboxes kept as they were at one moment, to go back to or to fork from."""

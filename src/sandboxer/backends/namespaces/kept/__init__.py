"""Makes, restores, copies and drops disks that are kept read-only beside those of the sandboxes."""

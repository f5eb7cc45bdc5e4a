"""Volumes are named disks that outlive sandboxes; one sandbox writes to it, or many read it."""

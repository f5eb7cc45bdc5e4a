"""Volumes: named disks that outlive sandboxes, written by one or read by many."""

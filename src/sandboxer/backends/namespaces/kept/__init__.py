"""Disks kept read-only beside the sandboxes' own: taking, restoring, copying and dropping them."""

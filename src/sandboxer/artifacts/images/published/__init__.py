"""Published images are disks kept to be shared and started from, independent of what they came from."""

"""Published images: disks kept to be shared and started from, apart from what they came from."""

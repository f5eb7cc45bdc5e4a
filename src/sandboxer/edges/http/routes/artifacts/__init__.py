"""Routes of what outlives a sandbox: snapshots, images, volumes."""

"""What nobody needs any more on this host: trees that images were built as, disks that a failure left."""

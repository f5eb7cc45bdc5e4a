"""Things that outlive a sandbox: images now; snapshots and volumes later."""

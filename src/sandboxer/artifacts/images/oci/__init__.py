"""Images as others read and write them: OCI layouts and Docker archives, both as one tar."""

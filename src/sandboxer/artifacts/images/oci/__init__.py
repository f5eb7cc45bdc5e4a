"""Images in the formats that other tools read and write: OCI layouts and Docker archives, each as one tar."""

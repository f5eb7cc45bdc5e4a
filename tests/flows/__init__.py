"""The flows of the paper, each over HTTP against real sandboxes."""

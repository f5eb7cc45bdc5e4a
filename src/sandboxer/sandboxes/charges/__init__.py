"""What sandboxes pay: their terms, the charge that follows each step, and what an empty bucket demands."""
